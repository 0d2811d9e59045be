// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls are refused with a text that names the tensor, what was expected and what came; nothing is written.
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "backends.h"

namespace leapquant::conformance {
namespace {

using Call = FlushCall;

struct BadCall {
  const char* name;
  std::function<void(Call&)> spoil;
  lq_status status;
  std::vector<std::string> words;  // each stands in the error text
};

void shift(lq_tensor& tensor, int bytes) { tensor.data = static_cast<char*>(tensor.data) + bytes; }

void transpose(lq_tensor& tensor, int a, int b) { std::swap(tensor.strides[a], tensor.strides[b]); }

std::string name_of(lq_device device) {
  return device.type == LQ_DEVICE_CPU ? "cpu" : "cuda:" + std::to_string(device.index);
}

std::vector<BadCall> bad_calls(lq_device device) {
  const lq_status invalid = LQ_INVALID_ARGUMENT;
  const lq_status lacks = LQ_UNSUPPORTED;
  return {
      {"dtype", [](Call& c) { c.checkpoint.s_k.dtype = LQ_FLOAT16; }, invalid, {"'s_k'", "float32", "float16"}},
      {"unknown dtype", [](Call& c) { c.window.w.dtype = static_cast<lq_dtype>(99); }, invalid, {"'w'", "unknown"}},
      {"shape",
       [](Call& c) { c.window.kbuf.shape[2] = 15; },
       invalid,
       {"'kbuf'", "[2, 3, 16, 128]", "[2, 3, 15, 128]"}},
      {"dimensions", [](Call& c) { c.checkpoint.s_v.ndim = 2; }, invalid, {"'s_v'", "[2, 3, 128]", "[2, 3]"}},
      {"too many dimensions", [](Call& c) { c.checkpoint.u.ndim = 6; }, invalid, {"'u'", "6 dimensions"}},
      {"negative dimensions", [](Call& c) { c.checkpoint.u.ndim = -1; }, invalid, {"'u'", "-1 dimensions"}},
      {"missing tensor", [](Call& c) { c.window.pcum = {}; }, invalid, {"'pcum'", "no tensor"}},
      {"missing codes", [](Call& c) { c.checkpoint.codes = {}; }, invalid, {"'codes'"}},
      {"null data", [](Call& c) { c.checkpoint.q.data = nullptr; }, invalid, {"'q'", "null"}},
      {"tensor of the other gate", [](Call& c) { c.window.p = c.window.w; }, invalid, {"'p'", "none", "kda"}},
      {"device",
       [](Call& c) {
         c.q0.device = {LQ_DEVICE_CUDA, 1};
       },
       invalid,
       {"'q0'", "on " + name_of(device), "cuda:1"}},
      {"zero batch", [](Call& c) { c.checkpoint.codes.shape[0] = 0; }, invalid, {"'codes'", "batch", "got 0"}},
      {"negative batch", [](Call& c) { c.checkpoint.codes.shape[0] = -4; }, invalid, {"'codes'", "got -4"}},
      {"huge batch", [](Call& c) { c.checkpoint.codes.shape[0] = INT64_MAX; }, invalid, {"'codes'", "batch"}},
      {"batch of another tensor", [](Call& c) { c.window.gbuf.shape[0] = 1; }, invalid, {"'gbuf'", "[1, 3, 16, 128]"}},
      {"transposed codes", [](Call& c) { transpose(c.checkpoint.codes, 2, 3); }, invalid, {"'codes'", "contiguous"}},
      {"every second q0 column",
       [](Call& c) {
         c.q0.strides[0] = 8;
         c.q0.strides[1] = 2;
       },
       invalid,
       {"'q0'", "strides [8, 2]", "contiguous"}},
      {"huge stride", [](Call& c) { c.window.w.strides[0] = INT64_MAX; }, invalid, {"'w'", "stride"}},
      {"misaligned window", [](Call& c) { shift(c.window.kbuf, 1); }, invalid, {"'kbuf'", "multiple of 2"}},
      {"misaligned scales", [](Call& c) { shift(c.checkpoint.s_k, 2); }, invalid, {"'s_k'", "multiple of 4"}},
      {"strided result", [](Call& c) { c.result.s_k.strides[0] *= 2; }, invalid, {"'result.s_k'", "contiguous"}},
      {"result over an input",
       [](Call& c) { c.result.codes.data = c.checkpoint.codes.data; },
       invalid,
       {"'result.codes'", "overlap", "'codes'"}},
      {"result over the middle of an input",
       [](Call& c) { c.result.u.data = static_cast<char*>(c.window.gbuf.data) + 64; },
       invalid,
       {"'result.u'", "overlap", "'gbuf'"}},
      {"results over one another",
       [](Call& c) { c.result.s_v.data = c.result.s_k.data; },
       invalid,
       {"'result.s_v'", "overlap", "'result.s_k'"}},
      {"result over q0",
       [](Call& c) { c.q0.data = c.result.s_k.data; },  // the smaller of the two, which then overlaps nothing else
       invalid,
       {"'result.s_k'", "overlap", "'q0'"}},
      {"unknown flags", [](Call& c) { c.flags = 64; }, invalid, {"flags", "0x40"}},
      {"unknown gate", [](Call& c) { c.geometry.gate = static_cast<lq_gate>(7); }, invalid, {"gate", "7"}},
      {"no heads", [](Call& c) { c.geometry.num_heads = 0; }, invalid, {"num_heads", "got 0"}},
      {"negative rank", [](Call& c) { c.geometry.rank = -4; }, invalid, {"rank", "got -4"}},
      {"huge window", [](Call& c) { c.geometry.window = INT32_MAX; }, invalid, {"window", "2147483647"}},
      {"uneven key heads",
       [](Call& c) { c.geometry.num_key_heads = 2; },
       invalid,
       {"key heads", "got num_key_heads 2"}},
      {"other rank", [](Call& c) { c.geometry.rank = 3; }, lacks, {"backend", "rank", "1, 2, 4, 8", "got 3"}},
      {"other window", [](Call& c) { c.geometry.window = 8; }, lacks, {"backend", "window", "got 8"}},
      {"other key dim", [](Call& c) { c.geometry.key_dim = 64; }, lacks, {"backend", "key_dim", "got 64"}},
      {"other value dim", [](Call& c) { c.geometry.value_dim = 256; }, lacks, {"backend", "value_dim", "got 256"}},
      {"other codes", [](Call& c) { c.geometry.code_bits = 4; }, lacks, {"backend", "code_bits", "got 4"}},
      {"NaN when asked to look",
       [](Call& c) {
         c.flags = LQ_FLUSH_CHECK_FINITE;
         c.inputs.checkpoint.s_v[128 * 4 + 17] = std::numeric_limits<float>::quiet_NaN();
       },
       invalid,
       {"'s_v'", "nan", "batch 1, head 1", "element 17"}},
      {"Inf when asked to look",
       [](Call& c) {
         c.flags = LQ_FLUSH_CHECK_FINITE;
         c.inputs.window.ubuf[128 * 16 * 2 + 128 * 3 + 5] = Bfloat16{0x7F80};
       },
       invalid,
       {"'ubuf'", "inf", "batch 0, head 2", "row 3, element 5"}},
  };
}

using BadInputTest = BackendTest;

TEST_P(BadInputTest, FunctionalCallsAreRefused) {
  const judge::FlushInputs valid = inputs_of(judge::Family::kRandom, geometry_of(3), 2);
  const Context backend = context();
  for (const BadCall& bad : bad_calls(backend.info().device)) {
    SCOPED_TRACE(bad.name);
    Call call(backend, valid);
    bad.spoil(call);
    const auto inputs_before = bytes_of(call.inputs.checkpoint);
    const auto output_before = bytes_of(call.output);
    EXPECT_EQ(call.run(backend), bad.status);
    const std::string text = lq_last_error();
    for (const std::string& word : bad.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
    EXPECT_EQ(bytes_of(call.output), output_before);
    EXPECT_EQ(bytes_of(call.inputs.checkpoint), inputs_before);
  }
}

// Plants a value in each input, in the last program and there in the last element.
TEST_P(BadInputTest, TheSearchForNonFiniteValuesSeesAllInputs) {
  const judge::FlushInputs valid = inputs_of(judge::Family::kRandom, geometry_of(3), 2);
  const Context backend = context();
  const Bfloat16 bfloat_inf{0xFF80};
  const Half half_nan{0x7E00};
  const std::pair<const char*, std::function<void(judge::FlushInputs&)>> plants[] = {
      {"'s_k'", [](judge::FlushInputs& i) { i.checkpoint.s_k.back() = INFINITY; }},
      {"'s_v'", [](judge::FlushInputs& i) { i.checkpoint.s_v.back() = -INFINITY; }},
      {"'u'", [&](judge::FlushInputs& i) { i.checkpoint.u.back() = half_nan; }},
      {"'q'", [&](judge::FlushInputs& i) { i.checkpoint.q.back() = half_nan; }},
      {"'kbuf'", [&](judge::FlushInputs& i) { i.window.kbuf.back() = bfloat_inf; }},
      {"'ubuf'", [&](judge::FlushInputs& i) { i.window.ubuf.back() = bfloat_inf; }},
      {"'w'", [](judge::FlushInputs& i) { i.window.w.back() = NAN; }},
      {"'gbuf'", [&](judge::FlushInputs& i) { i.window.gbuf.back() = half_nan; }},
      {"'pcum'", [](judge::FlushInputs& i) { i.window.pcum.back() = -INFINITY; }},
      {"'q0'", [](judge::FlushInputs& i) { i.q0.back() = NAN; }}};
  Call call(backend, valid);
  call.flags = LQ_FLUSH_CHECK_FINITE;
  EXPECT_EQ(call.run(backend), LQ_OK) << lq_last_error();
  for (const auto& [name, plant] : plants) {
    call.inputs = valid;
    plant(call.inputs);
    EXPECT_EQ(call.run(backend), LQ_INVALID_ARGUMENT) << name;
    const std::string text = lq_last_error();
    EXPECT_NE(text.find(name), std::string::npos) << text;
    const bool whole_batch = std::string(name) == "'q0'";
    EXPECT_EQ(text.find("batch 1, head 2, row") == std::string::npos, whole_batch) << text;
  }
}

TEST_P(BadInputTest, NullPointersAreRefused) {
  const judge::FlushInputs valid = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  const Context backend = context();
  Call c(backend, valid);
  EXPECT_EQ(lq_flush(nullptr, &c.geometry, &c.checkpoint, &c.window, &c.q0, &c.result, 0, nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_flush(backend.get(), nullptr, &c.checkpoint, &c.window, &c.q0, &c.result, 0, nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_flush(backend.get(), &c.geometry, nullptr, &c.window, &c.q0, &c.result, 0, nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_flush(backend.get(), &c.geometry, &c.checkpoint, &c.window, &c.q0, nullptr, 0, nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_pool_create(backend.get(), nullptr, nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_context_create(nullptr, nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_flush_inplace(nullptr, &c.q0, &c.q0, nullptr), LQ_INVALID_ARGUMENT);
  lq_pool_destroy(nullptr);
  lq_context_destroy(nullptr);
}

// Slots 1 to B of a pool as the inputs of a functional call: views that are strided over batch, head and rank.
void take_inputs_from(const lq_pool_tensors& pool, Call& call) {
  const auto from_slot_1 = [](lq_tensor view, int64_t element_bytes) {
    view.data = static_cast<char*>(view.data) + view.strides[0] * element_bytes;
    view.shape[0] -= 1;
    return view;
  };
  call.checkpoint.codes = from_slot_1(pool.codes, 1);
  call.checkpoint.s_k = from_slot_1(pool.s_k, 4);
  call.checkpoint.s_v = from_slot_1(pool.s_v, 4);
  call.checkpoint.u = from_slot_1(pool.uq, 2);
  call.checkpoint.u.shape[3] = 128;
  call.checkpoint.q = call.checkpoint.u;
  call.checkpoint.q.data = static_cast<uint16_t*>(call.checkpoint.q.data) + 128;
  call.window.kbuf = from_slot_1(pool.kbuf, 2);
  call.window.w = from_slot_1(pool.w, 4);
}

TEST_P(BadInputTest, StridedInputsGiveTheSameBits) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(3), 2);
  const Context backend = context();
  const auto expected = bytes_of(flush_or_die(backend, inputs));
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool pool = filled_pool(backend, inputs, 3, layout);
    Call call(backend, inputs);
    call.flags = LQ_FLUSH_CHECK_FINITE;
    take_inputs_from(pool.device(), call);
    ASSERT_EQ(call.run(backend), LQ_OK) << lq_last_error();
    EXPECT_EQ(bytes_of(call.output), expected);
    // Element 7 of item 1, head 2: of its scales, and of row 2 of its factors.
    const lq_pool_tensors& t = pool.host();
    auto* const scale = static_cast<float*>(t.s_k.data) + 2 * t.s_k.strides[0] + 2 * t.s_k.strides[1] + 7;
    auto* const factor =
        static_cast<Half*>(t.uq.data) + 2 * t.uq.strides[0] + 2 * t.uq.strides[1] + 2 * t.uq.strides[2] + 7;
    const auto expect_found = [&](auto& element, auto not_finite, const std::string& name, int row) {
      const auto finite = std::exchange(element, not_finite);
      pool.upload();
      EXPECT_EQ(call.run(backend), LQ_INVALID_ARGUMENT);
      const std::string text = lq_last_error();
      EXPECT_NE(text.find(name), std::string::npos) << text;
      const std::string place = "batch 1, head 2, row " + std::to_string(row) + ", element 7";
      EXPECT_NE(text.find(place), std::string::npos) << text;
      element = finite;
    };
    expect_found(*scale, INFINITY, "'s_k'", 0);
    expect_found(factor[0], Half{0x7C00}, "'u'", 2);
    expect_found(factor[128], Half{0x7C00}, "'q'", 2);
  }
}

// Two bytes off is legal for 2-byte elements. A backend takes it and gives the same bits, which those on host memory
// do, or refuses it by name.
TEST_P(BadInputTest, AnAddressAlignedToItsElementsChangesNothing) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(3), 2);
  const Context backend = context();
  std::vector<Bfloat16> shifted(inputs.window.kbuf.size() + 1);
  std::copy(inputs.window.kbuf.begin(), inputs.window.kbuf.end(), shifted.begin() + 1);
  Mirrors mirror(backend.info().device);
  const lq_tensor memory = mirror.add(tensor(shifted.data(), LQ_BFLOAT16, {std::ssize(shifted)}));
  Call call(backend, inputs);
  call.window.kbuf.data = static_cast<Bfloat16*>(memory.data) + 1;
  const auto before = bytes_of(call.output);
  const lq_status status = call.run(backend);
  if (status == LQ_UNSUPPORTED && !GetParam().on_host()) {
    EXPECT_NE(std::string(lq_last_error()).find("'kbuf'"), std::string::npos) << lq_last_error();
    EXPECT_EQ(bytes_of(call.output), before);
  } else {
    ASSERT_EQ(status, LQ_OK) << lq_last_error();
    EXPECT_EQ(bytes_of(call.output), bytes_of(flush_or_die(backend, inputs)));
  }
}

TEST_P(BadInputTest, InPlaceCallsAreRefused) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 3);
  const auto before = bytes_of(pool);
  const InplaceArguments arguments(backend.info().device, {1, 2}, inputs);
  const lq_tensor& idx = arguments.indices;
  const lq_tensor& q0 = arguments.q0;
  const auto expect_refusal = [&](const lq_tensor& bad_idx, const lq_tensor& bad_q0, const std::string& word) {
    EXPECT_EQ(lq_flush_inplace(pool.pool().get(), &bad_idx, &bad_q0, nullptr), LQ_INVALID_ARGUMENT);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
    pool.download();
    EXPECT_EQ(bytes_of(pool), before);
  };
  lq_tensor wrong = idx;
  wrong.dtype = LQ_FLOAT32;
  expect_refusal(wrong, q0, "'idx'");
  wrong = idx;
  wrong.strides[0] = 2;
  expect_refusal(wrong, q0, "contiguous");
  wrong = idx;
  wrong.device = {LQ_DEVICE_CUDA, 7};
  expect_refusal(wrong, q0, "cuda:7");
  wrong = idx;
  wrong.ndim = 2;
  expect_refusal(wrong, q0, "2 dimensions");
  wrong = idx;
  wrong.shape[0] = -1;
  expect_refusal(wrong, q0, "[-1]");
  wrong = idx;
  wrong.shape[0] = int64_t{1} << 40;
  expect_refusal(wrong, q0, "[1099511627776]");
  wrong = q0;
  wrong.shape[1] = 3;
  expect_refusal(idx, wrong, "'q0'");
  wrong = q0;
  wrong.data = pool.device().raw.data;
  expect_refusal(idx, wrong, "'pool.raw'");
  wrong = idx;
  wrong.data = pool.device().hcnt.data;
  expect_refusal(wrong, q0, "'pool.hcnt'");
}

TEST_P(BadInputTest, PoolOptionsAreChecked) {
  const Context backend = context();
  const lq_geometry geometry = judge::public_geometry(geometry_of(2));
  const auto expect_refusal = [&](const lq_pool_options& options, lq_status status, const std::string& word) {
    lq_pool* pool = nullptr;
    EXPECT_EQ(lq_pool_create(backend.get(), &options, &pool), status);
    EXPECT_EQ(pool, nullptr);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
  };
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, 0, nullptr, 0}, LQ_INVALID_ARGUMENT, "num_slots");
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, -1, nullptr, 0}, LQ_INVALID_ARGUMENT, "num_slots");
  expect_refusal({geometry, static_cast<lq_layout>(9), 2, nullptr, 0}, LQ_INVALID_ARGUMENT, "layout");
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, 2, nullptr, 8}, LQ_INVALID_ARGUMENT, "flags");
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, 2, nullptr, LQ_POOL_KEEP_CONTENTS}, LQ_INVALID_ARGUMENT, "storage");
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, INT64_MAX, nullptr, 0}, LQ_OUT_OF_MEMORY, "slots");

  const Pool owner(backend, geometry, 2);
  lq_pool_tensors memory = owner.tensors();
  memory.gbuf.shape[2] = 8;
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, 2, &memory, 0}, LQ_INVALID_ARGUMENT, "'gbuf'");
  memory = owner.tensors();
  memory.ubuf.data = memory.kbuf.data;
  expect_refusal({geometry, LQ_LAYOUT_COMPACT, 2, &memory, 0}, LQ_INVALID_ARGUMENT, "overlap");
  memory = owner.tensors();
  expect_refusal({geometry, LQ_LAYOUT_PADDED, 2, &memory, 0}, LQ_INVALID_ARGUMENT, "'raw'");
}

// A pool that does not fit reports it and leaves nothing behind: a small one works afterwards.
TEST_P(BadInputTest, TooLargeAPoolThenASmallOne) {
  const Context backend = context();
  const lq_geometry geometry = judge::public_geometry(geometry_of(32));
  const lq_pool_options huge{geometry, LQ_LAYOUT_PADDED, int64_t{1} << 24, nullptr, 0};  // 36 TB
  lq_pool* pool = nullptr;
  EXPECT_EQ(lq_pool_create(backend.get(), &huge, &pool), LQ_OUT_OF_MEMORY);
  EXPECT_EQ(pool, nullptr);
  EXPECT_NO_THROW(Pool(backend, geometry, 2));
}

LQ_FOR_ALL_BACKENDS(BadInputTest);

}  // namespace
}  // namespace leapquant::conformance
