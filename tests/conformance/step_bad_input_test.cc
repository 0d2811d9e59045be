// SPDX-License-Identifier: Apache-2.0
//
// Wrong steps are refused with a text that names the tensor or option, what was expected and what came; nothing is
// written. What may be strided may be.
#include <cmath>
#include <functional>

#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using StepBadInputTest = BackendTest;
using Call = StepCall;

struct BadCall {
  const char* name;
  std::function<void(Call&)> spoil;
  lq_status status;
  std::vector<std::string> words;  // each stands in the error text
};

std::vector<BadCall> bad_calls() {
  const lq_status invalid = LQ_INVALID_ARGUMENT;
  const lq_status lacks = LQ_UNSUPPORTED;
  return {
      {"dtype of qx", [](Call& c) { c.token.qx.dtype = LQ_FLOAT16; }, invalid, {"'qx'", "bfloat16", "float16"}},
      {"shape of kx", [](Call& c) { c.token.kx.shape[1] = 2; }, invalid, {"'kx'", "[2, 3, 128]", "[2, 2, 128]"}},
      {"missing vx", [](Call& c) { c.token.vx = {}; }, invalid, {"'vx'", "no tensor"}},
      {"null a", [](Call& c) { c.token.a.data = nullptr; }, invalid, {"'a'", "null"}},
      {"dimensions of b", [](Call& c) { c.token.b.ndim = 1; }, invalid, {"'b'", "[2, 3]", "[2]"}},
      {"length of A_log", [](Call& c) { c.token.A_log.shape[0] = 4; }, invalid, {"'A_log'", "[3]", "[4]"}},
      {"dtype of dt_bias", [](Call& c) { c.token.dt_bias.dtype = LQ_INT32; }, invalid, {"'dt_bias'", "int32"}},
      {"strided dt_bias", [](Call& c) { c.token.dt_bias.strides[0] = 256; }, invalid, {"'dt_bias'", "contiguous"}},
      {"transposed kx", [](Call& c) { std::swap(c.token.kx.strides[1], c.token.kx.strides[2]); }, invalid, {"'kx'"}},
      {"device of vx",
       [](Call& c) {
         c.token.vx.device = {LQ_DEVICE_CUDA, 7};
       },
       invalid,
       {"'vx'", "cuda:7"}},
      {"packed and apart", [](Call& c) { c.token.mixed = c.token.qx; }, invalid, {"'mixed'", "[2, 1152]"}},
      {"packed and a value",
       [](Call& c) {
         c.token.mixed = c.token.qx;
         c.token.mixed.ndim = 2;
         c.token.mixed.shape[1] = 1152;
         c.token.mixed.strides[0] = 1152;
         c.token.mixed.strides[1] = 1;
         c.token.qx = c.token.kx = {};
       },
       invalid,
       {"'vx'", "none beside 'mixed'"}},
      {"given and computed gate", [](Call& c) { c.token.log_gate = c.token.a; }, invalid, {"'log_gate'", "none"}},
      {"given gate missing", [](Call& c) { c.params.gate_function = LQ_GATE_GIVEN; }, invalid, {"'log_gate'"}},
      {"misaligned A_log",
       [](Call& c) { c.token.A_log.data = static_cast<char*>(c.token.A_log.data) + 2; },
       invalid,
       {"'A_log'", "multiple of 4"}},
      {"dtype of h", [](Call& c) { c.h.dtype = LQ_FLOAT32; }, invalid, {"'h'", "int32"}},
      {"window", [](Call& c) { c.window.kbuf.shape[2] = 15; }, invalid, {"'kbuf'", "[2, 3, 16, 128]"}},
      {"checkpoint", [](Call& c) { c.checkpoint.u.shape[2] = 8; }, invalid, {"'u'", "[2, 3, 4, 128]"}},
      {"zero batch", [](Call& c) { c.checkpoint.codes.shape[0] = 0; }, invalid, {"'codes'", "batch", "got 0"}},
      {"strided result", [](Call& c) { c.result.o.strides[0] *= 2; }, invalid, {"'result.o'", "contiguous"}},
      {"dtype of g_row", [](Call& c) { c.result.g_row.dtype = LQ_BFLOAT16; }, invalid, {"'result.g_row'"}},
      {"missing w_new", [](Call& c) { c.result.w_new = {}; }, invalid, {"'result.w_new'", "no tensor"}},
      {"result of the other gate", [](Call& c) { c.result.p_new = c.result.w_new; }, invalid, {"'result.p_new'"}},
      {"result over the window",
       [](Call& c) { c.result.pcum_new.data = c.window.pcum.data; },
       invalid,
       {"'result.pcum_new'", "overlap", "'pcum'"}},
      {"result over the token",
       [](Call& c) { c.result.o.data = c.token.vx.data; },  // as large: it reaches nothing behind
       invalid,
       {"'result.o'", "overlap", "'vx'"}},
      {"results over one another",
       [](Call& c) { c.result.u_row.data = c.result.o.data; },
       invalid,
       {"'result.u_row'", "overlap", "'result.o'"}},
      {"unknown gate function",
       [](Call& c) { c.params.gate_function = static_cast<lq_gate_function>(3); },
       invalid,
       {"gate_function", "got 3"}},
      {"lower bound",
       [](Call& c) {
         c.params.gate_function = LQ_GATE_BOUNDED;
         c.params.lower_bound = 0;
       },
       invalid,
       {"lower_bound", "below 0", "got 0"}},
      {"lower bound that is none",
       [](Call& c) {
         c.params.gate_function = LQ_GATE_BOUNDED;
         c.params.lower_bound = NAN;
       },
       invalid,
       {"lower_bound", "nan"}},
      {"unknown flags", [](Call& c) { c.params.flags = 64; }, invalid, {"flags", "0x40"}},
      {"params without a size", [](Call& c) { c.params.size = 0; }, invalid, {"size", "got 0"}},
      {"other rank", [](Call& c) { c.geometry.rank = 3; }, lacks, {"rank", "1, 2, 4, 8", "got 3"}},
  };
}

// Only memory of the host can be looked at.
std::vector<BadCall> bad_entries() {
  const lq_status invalid = LQ_INVALID_ARGUMENT;
  return {
      {"negative h", [](Call& c) { c.inputs.h[4] = -1; }, invalid, {"'h'", "0 to 15", "got -1 at batch 1, head 1"}},
      {"full window", [](Call& c) { c.inputs.h[5] = 16; }, invalid, {"'h'", "got 16 at batch 1, head 2"}},
  };
}

TEST_P(StepBadInputTest, FunctionalCallsAreRefused) {
  const judge::StepInputs valid = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 2);
  const Context backend = context();
  std::vector<BadCall> calls = bad_calls();
  for (const BadCall& bad : bad_entries()) {
    if (GetParam().on_host()) calls.push_back(bad);
  }
  for (const BadCall& bad : calls) {
    SCOPED_TRACE(bad.name);
    Call call(backend, valid);
    bad.spoil(call);
    const auto before = bytes_of(call.output);
    EXPECT_EQ(call.run(backend), bad.status);
    const std::string text = lq_last_error();
    for (const std::string& word : bad.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
    EXPECT_EQ(bytes_of(call.output), before);
  }
}

// A caller of a later version: its members are fine as long as they say nothing.
TEST_P(StepBadInputTest, ParamsMayGrow) {
  struct LaterParams {
    lq_step_params known;
    uint32_t unknown[4];
  };
  const Context backend = context();
  Call call(backend, step_inputs_of(judge::StepFamily::kRandom, geometry_of(1), 1));
  LaterParams later{LQ_STEP_PARAMS_DEFAULT, {}};
  later.known.size = sizeof(later);
  const auto status = [&] {
    return lq_step(backend.get(), &call.geometry, &call.checkpoint, &call.window, &call.h, &call.token, &later.known,
                   &call.result, nullptr);
  };
  EXPECT_EQ(status(), LQ_OK) << lq_last_error();
  later.unknown[3] = 1;
  EXPECT_EQ(status(), LQ_UNSUPPORTED);
  EXPECT_NE(std::string(lq_last_error()).find("params"), std::string::npos);
  EXPECT_EQ(lq_step(backend.get(), &call.geometry, &call.checkpoint, &call.window, &call.h, &call.token, nullptr,
                    &call.result, nullptr),
            LQ_OK);
}

TEST_P(StepBadInputTest, NullPointersAreRefused) {
  const Context backend = context();
  const Call c(backend, step_inputs_of(judge::StepFamily::kRandom, geometry_of(1), 1));
  const auto step = [&](lq_context* context, const lq_geometry* geometry, const lq_checkpoint* checkpoint,
                        const lq_tensor* h, const lq_token* token, const lq_step_result* result) {
    return lq_step(context, geometry, checkpoint, &c.window, h, token, &c.params, result, nullptr);
  };
  EXPECT_EQ(step(nullptr, &c.geometry, &c.checkpoint, &c.h, &c.token, &c.result), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(step(backend.get(), nullptr, &c.checkpoint, &c.h, &c.token, &c.result), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(step(backend.get(), &c.geometry, nullptr, &c.h, &c.token, &c.result), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(step(backend.get(), &c.geometry, &c.checkpoint, nullptr, &c.token, &c.result), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(step(backend.get(), &c.geometry, &c.checkpoint, &c.h, nullptr, &c.result), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(step(backend.get(), &c.geometry, &c.checkpoint, &c.h, &c.token, nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_step_inplace(nullptr, &c.h, &c.token, nullptr, &c.h, nullptr), LQ_INVALID_ARGUMENT);
}

// Every tensor that may be strided over batch and head is: rows three heads and a gap apart.
TEST_P(StepBadInputTest, StridedTokensGiveTheSameBits) {
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 2);
  const Context backend = context();
  const auto expected = bytes_of(step_or_die(backend, inputs));
  Call call(backend, inputs);
  Mirrors mirrors(backend.info().device);
  std::vector<std::vector<char>> memory;
  const auto spread = [&](lq_tensor& target, const lq_tensor& host) {
    const int64_t row = host.ndim == 3 ? host.shape[2] : 1;
    const size_t row_bytes = tensor_bytes(host) / static_cast<size_t>(host.shape[0] * host.shape[1]);
    const size_t element = row_bytes / static_cast<size_t>(row);
    std::vector<char>& wide = memory.emplace_back(4 * tensor_bytes(host), 0);
    const int64_t head_stride = row + 5;
    const int64_t item_stride = 3 * head_stride + 7;
    for (int64_t i = 0; i < host.shape[0] * host.shape[1]; ++i) {
      const int64_t place = i / host.shape[1] * item_stride + i % host.shape[1] * head_stride;
      const auto offset = static_cast<size_t>(place) * element;
      if (wide.size() < offset + row_bytes) wide.resize(offset + row_bytes);
      std::memcpy(wide.data() + offset, static_cast<const char*>(host.data) + static_cast<size_t>(i) * row_bytes,
                  row_bytes);
    }
    lq_tensor flat = tensor(wide.data(), host.dtype, {static_cast<int64_t>(wide.size() / element)});
    target.data = mirrors.add(flat).data;
    target.strides[0] = item_stride;
    target.strides[1] = head_stride;
  };
  memory.reserve(8);
  const lq_token host = judge::public_token(call.inputs);
  spread(call.token.qx, host.qx);
  spread(call.token.kx, host.kx);
  spread(call.token.vx, host.vx);
  spread(call.token.a, host.a);
  spread(call.token.b, host.b);
  spread(call.h, judge::public_entries(call.inputs));
  ASSERT_EQ(call.run(backend), LQ_OK) << lq_last_error();
  EXPECT_EQ(bytes_of(call.output), expected);
}

TEST_P(StepBadInputTest, InPlaceCallsAreRefused) {
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 2);
  const Context backend = context();
  const MirroredPool pool(backend, inputs.geometry, 3);
  for (int64_t item = 0; item < 2; ++item) fill_slot(pool, item + 1, inputs, item);
  pool.upload();
  const auto before = bytes_of(pool);
  using Arguments = StepArguments;
  const auto expect_refusal = [&](const std::function<void(Arguments&)>& spoil,
                                  std::initializer_list<const char*> words) {
    Arguments arguments(backend.info().device, {1, 2}, inputs);
    spoil(arguments);
    EXPECT_EQ(arguments.enqueue(pool.pool()), LQ_INVALID_ARGUMENT);
    for (const char* word : words) {
      EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << word << " in: " << lq_last_error();
    }
    pool.download();
    EXPECT_EQ(bytes_of(pool), before);
  };
  expect_refusal([](Arguments& a) { a.indices.dtype = LQ_FLOAT32; }, {"'idx'", "int32"});
  expect_refusal([](Arguments& a) { a.indices.shape[0] = 1; }, {"'qx'", "[1, 2, 128]"});
  expect_refusal([](Arguments& a) { a.o.shape[2] = 64; }, {"'o'", "[2, 2, 128]"});
  expect_refusal([](Arguments& a) { a.o.strides[0] = 512; }, {"'o'", "contiguous"});
  expect_refusal([](Arguments& a) { a.o.strides[0] = 0; }, {"'o'", "contiguous"});
  expect_refusal([](Arguments& a) { a.o.dtype = LQ_FLOAT16; }, {"'o'", "bfloat16"});
  expect_refusal([](Arguments& a) { a.o.data = a.token.vx.data; }, {"'o'", "overlap", "'vx'"});
  expect_refusal([&](Arguments& a) { a.o.data = pool.device().ubuf.data; }, {"'o'", "'pool.ubuf'"});
  expect_refusal([&](Arguments& a) { a.token.kx.data = pool.device().kbuf.data; }, {"'kx'", "'pool.kbuf'"});
  expect_refusal([&](Arguments& a) { a.indices.data = pool.device().hcnt.data; }, {"'idx'", "'pool.hcnt'"});
  expect_refusal([](Arguments& a) { a.token.b = {}; }, {"'b'", "no tensor"});
  expect_refusal([](Arguments& a) { a.params.flags = 1; }, {"flags"});
}

LQ_FOR_ALL_BACKENDS(StepBadInputTest);

}  // namespace
}  // namespace leapquant::conformance
