// SPDX-License-Identifier: Apache-2.0
//
// Import and export of dense states.
#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <numeric>

#include "ref/flush.h"
#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using StateTest = GatedBackendTest;

constexpr int64_t kHeads = 3;
constexpr int64_t kElements = 128 * 128;

// Slots of a batch, slot 0 included, whose windows hold any number of entries; nothing beyond them, in rows of NaN.
judge::StepInputs filled_inputs(const Geometry& geometry, int64_t slots) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry, slots);
  for (int64_t n = 0; n < inputs.programs(); ++n) {
    const WindowProgram window = inputs.window.view().at(n / geometry.num_heads, n % geometry.num_heads);
    for (int64_t j = inputs.h[static_cast<size_t>(n)]; j < 16; ++j) {
      window.window_weight[j] = 0.0f;
      std::fill_n(window.window_key + j * 128, 128, Bfloat16{0x7FC0});
      std::fill_n(window.window_update + j * 128, 128, Bfloat16{0x7FC0});
      if (window.window_gate != nullptr) std::fill_n(window.window_gate + j * 128, 128, Half{kHalfOne});
    }
  }
  return inputs;
}

MirroredPool pool_of(const Context& context, const judge::StepInputs& inputs, lq_layout layout = LQ_LAYOUT_COMPACT) {
  MirroredPool pool(context, inputs.geometry, inputs.batch, layout);
  for (int64_t slot = 0; slot < inputs.batch; ++slot) fill_slot(pool, slot, inputs, slot);
  pool.upload();
  return pool;
}

// Dense states of n sequences and the other arguments of both calls.
class StateArguments {
  std::vector<int32_t> index_values_;
  Mirrors mirrors_;

 public:
  StateArguments(lq_device device, std::vector<int32_t> index_values, const Geometry& geometry)
      : index_values_(std::move(index_values)),
        mirrors_(device),
        values(static_cast<size_t>(std::ssize(index_values_) * geometry.num_heads * kElements),
               std::numeric_limits<float>::quiet_NaN()),
        narrow_values(values.size(), Bfloat16{0xFFFF}),
        offset_values(static_cast<size_t>(std::ssize(index_values_) * geometry.num_heads), 0),
        basis(inputs_of(judge::Family::kRandom, geometry, 1).q0),
        indices(mirrors_.add(index_values_)),
        state(mirrors_.add(tensor(values.data(), LQ_FLOAT32, {count(), geometry.num_heads, 128, 128}))),
        narrow_state(mirrors_.add(tensor(narrow_values.data(), LQ_BFLOAT16, {count(), geometry.num_heads, 128, 128}))),
        offset(mirrors_.add(tensor(offset_values.data(), LQ_INT32, {count(), geometry.num_heads}))),
        q0(mirrors_.add(tensor(basis.data(), LQ_FLOAT32, {128, geometry.rank}))) {}
  StateArguments(const StateArguments&) = delete;
  StateArguments& operator=(const StateArguments&) = delete;

  int64_t count() const { return std::ssize(index_values_); }

  void run_export(const MirroredPool& pool, lq_state_order order = LQ_STATE_VK) {
    pool.upload();
    mirrors_.upload();
    pool.pool().export_state(indices, state, order);
    mirrors_.download();
    pool.download();
  }
  void run_import(const MirroredPool& pool, lq_state_order order = LQ_STATE_VK, bool narrow = false,
                  bool with_offset = false) {
    pool.upload();
    mirrors_.upload();
    pool.pool().import_state(indices, narrow ? narrow_state : state, order, with_offset ? &offset : nullptr, q0);
    pool.download();
  }
  lq_status enqueue_import(const MirroredPool& pool, lq_state_order order = LQ_STATE_VK) const {
    mirrors_.upload();
    return lq_pool_import_state(pool.pool().get(), &indices, &state, order, &offset, &q0, nullptr);
  }
  void set_offsets(const std::vector<int32_t>& offsets) {
    std::copy(offsets.begin(), offsets.end(), offset_values.begin());
  }

  std::vector<float> values;            // [n, H, V, K] or [n, H, K, V]; NaN to begin with
  std::vector<Bfloat16> narrow_values;  // likewise
  std::vector<int32_t> offset_values;   // [n, H]
  std::vector<float> basis;
  lq_tensor indices;
  lq_tensor state;
  lq_tensor narrow_state;
  lq_tensor offset;
  lq_tensor q0;
};

// Every program's matrix, its two dimensions swapped.
std::vector<float> transposed(const std::vector<float>& states) {
  std::vector<float> result(states.size());
  for (size_t program = 0; program < states.size(); program += kElements) {
    for (size_t v = 0; v < 128; ++v) {
      for (size_t k = 0; k < 128; ++k) result[program + k * 128 + v] = states[program + v * 128 + k];
    }
  }
  return result;
}

// An export gives step 1 of the flush in either order, at any fill, and leaves every byte.
TEST_P(StateTest, ExportsWhatCheckpointAndWindowStandFor) {
  const Context backend = context(2);
  judge::StepInputs inputs = filled_inputs(geometry(kHeads), 5);
  std::fill_n(inputs.h.begin() + 4 * kHeads, kHeads, 0);
  const MirroredPool pool = pool_of(backend, inputs, LQ_LAYOUT_PADDED);
  const auto before = bytes_of(pool);
  StateArguments by_value(backend.info().device, {3, 1, 2}, inputs.geometry);
  StateArguments by_key(backend.info().device, {3, 1, 2}, inputs.geometry);
  by_value.run_export(pool);
  by_key.run_export(pool, LQ_STATE_KV);
  EXPECT_EQ(bytes_of(pool), before);
  EXPECT_EQ(transposed(by_key.values), by_value.values);
  const int64_t items[] = {3, 1, 2};
  for (int64_t n = 0; n < 3 * kHeads; ++n) {
    const int64_t item = items[n / kHeads];
    const std::vector<double> exact = ref::rebuild_state<double>(
        inputs.geometry, inputs.checkpoint.view().at(item, n % kHeads), inputs.window.view().at(item, n % kHeads));
    double largest = 0;
    for (const double value : exact) largest = std::max(largest, std::abs(value));
    for (int64_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(by_value.values[n * kElements + i], exact[i], 1e-5 * largest) << "program " << n << ", " << i;
    }
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

// What an export gives is imported as a flush would have stored it: within its bound, program by program.
TEST_P(StateTest, ImportsWithinTheBoundOfAFlush) {
  for (const judge::Family family : {judge::Family::kStructured, judge::Family::kRandom}) {
    for (const int32_t rank : {1, 2, 4, 8}) {
      SCOPED_TRACE(std::string(judge::family_name(family)) + ", rank " + std::to_string(rank));
      const Context backend = context(2);
      const int64_t batch = repetitions(64) / 8 + 1;
      const judge::FlushInputs inputs = inputs_of(family, geometry(8, rank), batch, 21);
      const MirroredPool pool = filled_pool(backend, inputs, batch + 1);
      std::vector<int32_t> order(static_cast<size_t>(batch));
      std::iota(order.rbegin(), order.rend(), 1);
      StateArguments arguments(backend.info().device, order, inputs.geometry);
      arguments.basis = inputs.q0;
      arguments.run_export(pool);
      arguments.run_import(pool);
      std::iota(order.begin(), order.end(), 1);
      const judge::CheckpointTensors seen = judge::read_slots(pool.host(), inputs.geometry, order);
      const judge::Judgement judged = judge::judge_flush(inputs, seen.view(), 0);
      EXPECT_EQ(judged.programs, batch * 8);
      EXPECT_EQ(judged.over, 0) << "worst ratio " << judged.worst_ratio << ", program " << judged.worst_program;
      EXPECT_TRUE(judged.finite);
      EXPECT_EQ(pool.read_errors().flags, 0u);
    }
  }
}

// Heads that break the published formula: dependent columns, factors beyond fp16, zeros.
TEST_P(StateTest, ImportsStatesOfLowRank) {
  const Context backend = context(2);
  const Geometry shape = geometry(kHeads);
  const std::vector<float> sizes = {0.0f, 1e-3f, 1.0f, 6000.0f};
  const auto count = static_cast<int64_t>(sizes.size());
  std::vector<int32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 1);
  StateArguments arguments(backend.info().device, order, shape);
  for (int64_t n = 0; n < count * kHeads; ++n) {  // constant, rank 1, rank 2
    const float size = sizes[static_cast<size_t>(n / kHeads)];
    for (int64_t i = 0; i < kElements; ++i) {
      const auto v = static_cast<float>(i / 128 % 16 - 8);
      const auto k = static_cast<float>(i % 128 % 8 - 4);
      const float values[] = {1.0f, v * k / 16, v / 8 + k / 4};
      arguments.values[n * kElements + i] = size * values[n % kHeads];
    }
  }
  const MirroredPool pool(backend, shape, count + 1);
  arguments.run_import(pool);
  judge::CheckpointTensors seen = judge::read_slots(pool.host(), shape, order);
  for (int64_t n = 0; n < count * kHeads; ++n) {
    const std::vector<double> decoded = ref::decode(shape, seen.view().at(n / kHeads, n % kHeads));
    double error = 0;
    double size = 0;
    for (int64_t i = 0; i < kElements; ++i) {
      const double wanted = arguments.values[n * kElements + i];
      error += std::abs(decoded[i] - wanted);
      size += std::abs(wanted);
    }
    EXPECT_LE(error, 1e-3 * size) << "program " << n;
    const float* const scales = &seen.s_k[static_cast<size_t>(n) * 128];
    const bool floored = std::all_of(scales, scales + 128, [](float scale) { return scale == kScaleFloor; });
    EXPECT_TRUE(floored || size != 0);
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

// On host memory it is what a flush stores, bit for bit. (A flush of a device never forms the state.) Nothing of the
// slot's last tenant stays. Ranks, gates, layouts, threads, places in batch and pool do not matter.
TEST_P(StateTest, AnImportedExportIsAFlush) {
  for (const int32_t rank : {1, 2, 4, 8}) {
    const Context backend = context(rank);
    judge::StepInputs inputs = filled_inputs(geometry(kHeads, rank), 6);
    for (int32_t& count : inputs.h) count = std::max(count, 1);  // a flush leaves empty windows alone
    const MirroredPool pool = pool_of(backend, inputs);
    const MirroredPool flushed(backend, inputs.geometry, 6);
    for (const int64_t slot : {1, 2}) fill_slot(flushed, slot, inputs, slot);
    StateArguments arguments(backend.info().device, {1, 2}, inputs.geometry);
    arguments.run_export(pool);
    flushed.upload();
    flushed.pool().flush_now(arguments.indices, arguments.q0);
    flushed.download();
    StateArguments imported(backend.info().device, {0, 5, 3}, inputs.geometry);
    std::copy_n(arguments.values.begin(), 2 * kHeads * kElements, imported.values.begin() + kHeads * kElements);
    imported.run_import(pool);
    const std::vector<int32_t> targets = {5, 3};
    const std::vector<int32_t> origins = {1, 2};
    if (GetParam().backend.on_host()) {
      EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, targets)),
                bytes_of(judge::read_slots(flushed.host(), inputs.geometry, origins)));
    }
    // Window and counter are those of a new slot, all else is as it was.
    const MirroredPool expected = pool_of(backend, inputs);
    const judge::CheckpointTensors checkpoints = judge::read_slots(pool.host(), inputs.geometry, targets);
    const MirroredPool fresh(backend, inputs.geometry, 2);
    for (int64_t i = 0; i < 2; ++i) {
      judge::WindowTensors empty(inputs.geometry, 2);
      std::fill(empty.gbuf.begin(), empty.gbuf.end(), Half{kHalfOne});
      std::fill(empty.p.begin(), empty.p.end(), 1.0f);
      judge::write_slot(expected.host(), targets[static_cast<size_t>(i)], checkpoints, empty, i);
      judge::set_counters(expected.host(), targets[static_cast<size_t>(i)], 0);
    }
    EXPECT_EQ(bytes_of(pool), bytes_of(expected));
    EXPECT_EQ(pool.read_errors().flags, 0u);
  }
}

TEST_P(StateTest, OrdersTypesAndStridesAgree) {
  const Context backend = context(2);
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 3);
  const MirroredPool origin = pool_of(backend, inputs);
  StateArguments arguments(backend.info().device, {1, 2}, inputs.geometry);
  arguments.run_export(origin);
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    arguments.narrow_values[i] = to_bfloat16(arguments.values[i]);
    arguments.values[i] = to_float(arguments.narrow_values[i]);
  }
  const MirroredPool by_value(backend, inputs.geometry, 3);
  arguments.run_import(by_value);
  const auto expected = bytes_of(by_value);

  const MirroredPool narrow(backend, inputs.geometry, 3);
  arguments.run_import(narrow, LQ_STATE_VK, true);
  EXPECT_EQ(bytes_of(narrow), expected);

  StateArguments turned(backend.info().device, {1, 2}, inputs.geometry);
  const std::vector<float> columns = transposed(arguments.values);
  std::copy(columns.begin(), columns.end(), turned.values.begin());
  std::transform(columns.begin(), columns.end(), turned.narrow_values.begin(), to_bfloat16);
  const MirroredPool by_key(backend, inputs.geometry, 3);
  turned.run_import(by_key, LQ_STATE_KV);
  EXPECT_EQ(bytes_of(by_key), expected);
  const MirroredPool narrow_by_key(backend, inputs.geometry, 3);
  turned.run_import(narrow_by_key, LQ_STATE_KV, true);
  EXPECT_EQ(bytes_of(narrow_by_key), expected);

  // Heads outermost, and a gap behind each state.
  const int64_t step = kElements + 64;
  std::vector<float> spread(static_cast<size_t>(2 * kHeads * step), 7.0f);
  for (int64_t n = 0; n < 2 * kHeads; ++n) {
    std::copy_n(arguments.values.begin() + n * kElements, kElements,
                spread.begin() + ((n % kHeads) * 2 + n / kHeads) * step);
  }
  Mirrors mirrors(backend.info().device);
  lq_tensor strided = mirrors.add(tensor(spread.data(), LQ_FLOAT32, {std::ssize(spread)}));
  strided.ndim = 4;
  const int64_t shape[] = {2, kHeads, 128, 128};
  const int64_t strides[] = {step, 2 * step, 128, 1};
  std::copy_n(shape, 4, strided.shape);
  std::copy_n(strides, 4, strided.strides);
  arguments.state = strided;
  const MirroredPool from_strides(backend, inputs.geometry, 3);
  arguments.run_import(from_strides);
  EXPECT_EQ(bytes_of(from_strides), expected);
}

// Offsets are empty entries: the state and every output are what they are without them, and flushes fall due at other
// tokens.
TEST_P(StateTest, OffsetsSpreadTheFlushes) {
  const Context backend = context(2);
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 2);
  const MirroredPool origin = pool_of(backend, inputs);
  StateArguments arguments(backend.info().device, {1}, inputs.geometry);
  arguments.run_export(origin);
  const MirroredPool level(backend, inputs.geometry, 2);
  arguments.run_import(level);
  arguments.set_offsets({0, 5, 15});
  const MirroredPool staggered(backend, inputs.geometry, 2);
  arguments.run_import(staggered, LQ_STATE_VK, false, true);
  for (int64_t head = 0; head < kHeads; ++head) {
    EXPECT_EQ(staggered.counter(1, head), arguments.offset_values[static_cast<size_t>(head)]);
  }
  StateArguments a(backend.info().device, {1}, inputs.geometry);
  StateArguments b(backend.info().device, {1}, inputs.geometry);
  a.run_export(level);
  b.run_export(staggered);
  EXPECT_EQ(a.values, b.values);
  for (uint64_t t = 0; t < 12; ++t) {
    const judge::StepInputs token =
        step_inputs_of(judge::StepFamily::kStructured, inputs.geometry, 1, GateFunction::kSoftplus, 800 + t);
    StepArguments first(backend.info().device, {1}, token);
    StepArguments second(backend.info().device, {1}, token);
    first.step_flush(level, arguments.q0);
    second.step_flush(staggered, arguments.q0);
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto due_after = static_cast<uint64_t>(16 - arguments.offset_values[static_cast<size_t>(head)]);
      if (t >= due_after) continue;  // flushed: no longer the same checkpoint
      ASSERT_TRUE(std::equal(first.output.begin() + head * 128, first.output.begin() + (head + 1) * 128,
                             second.output.begin() + head * 128,
                             [](Bfloat16 x, Bfloat16 y) { return x.bits == y.bits; }))
          << "token " << t << ", head " << head;
      EXPECT_EQ(staggered.counter(1, head) == 16, t + 1 == due_after);
    }
  }
  EXPECT_EQ(staggered.read_errors().flags, 0u);
}

// One row of offsets for every sequence: a stride of 0.
TEST_P(StateTest, OffsetsMayBeSharedByTheSequences) {
  const Context backend = context();
  const Geometry shape = geometry(kHeads);
  const MirroredPool pool(backend, shape, 3);
  StateArguments arguments(backend.info().device, {1, 2}, shape);
  std::fill(arguments.values.begin(), arguments.values.end(), 0.5f);
  arguments.set_offsets({3, 9, 14, -1, -1, -1});
  arguments.offset.strides[0] = 0;
  arguments.run_import(pool, LQ_STATE_VK, false, true);
  for (const int64_t slot : {1, 2}) {
    EXPECT_EQ(pool.counter(slot, 0), 3);
    EXPECT_EQ(pool.counter(slot, 2), 14);
  }
}

TEST_P(StateTest, IndicesAndCountersAreReported) {
  const Context backend = context(2);
  judge::StepInputs inputs = filled_inputs(geometry(kHeads), 4);
  const MirroredPool pool = pool_of(backend, inputs);
  pool.counter(2, 1) = 17;
  pool.counter(3, 0) = -1;
  pool.upload();
  const auto before = bytes_of(pool);
  const std::vector<int32_t> order = {0, 2, 4, 1, INT_MIN, 3, INT_MAX};
  StateArguments arguments(backend.info().device, order, inputs.geometry);
  arguments.run_export(pool);
  EXPECT_EQ(bytes_of(pool), before);
  for (int64_t n = 0; n < 7 * kHeads; ++n) {
    const bool given = n / kHeads == 1 || n / kHeads == 3 || n / kHeads == 5;
    const bool zero = !given || n == kHeads + 1 || n == 5 * kHeads;
    const auto first = arguments.values.begin() + n * kElements;
    EXPECT_EQ(std::all_of(first, first + kElements, [](float value) { return value == 0; }), zero) << n;
  }
  lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX | 1u << LQ_ERROR_COUNTER);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 2);
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 1);

  StateArguments foreign(backend.info().device, {0, -5, 4, INT_MAX}, inputs.geometry);
  std::fill(foreign.values.begin(), foreign.values.end(), 1.0f);
  foreign.run_import(pool);
  EXPECT_EQ(bytes_of(pool), before);
  errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 2);
}

TEST_P(StateTest, NonFiniteStatesAreReportedAndContained) {
  const Context backend = context(2);
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 4);
  const MirroredPool origin = pool_of(backend, inputs);
  StateArguments arguments(backend.info().device, {3, 1, 2}, inputs.geometry);
  arguments.run_export(origin);
  const MirroredPool clean(backend, inputs.geometry, 4);
  arguments.run_import(clean);
  EXPECT_EQ(clean.read_errors().flags, 0u);
  arguments.values[(kHeads + 2) * kElements + 77] = std::numeric_limits<float>::infinity();
  const MirroredPool pool(backend, inputs.geometry, 4);
  arguments.run_import(pool);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 1);
  EXPECT_EQ(pool.counter(1, 2), 0);
  const std::vector<int32_t> others = {2, 3};
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, others)),
            bytes_of(judge::read_slots(clean.host(), inputs.geometry, others)));
}

TEST_P(StateTest, NoIndicesIsANoOp) {
  const Context backend = context();
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 2);
  const MirroredPool pool = pool_of(backend, inputs);
  const auto before = bytes_of(pool);
  StateArguments arguments(backend.info().device, {}, inputs.geometry);
  arguments.run_export(pool);
  arguments.run_import(pool, LQ_STATE_KV, true, true);
  EXPECT_EQ(bytes_of(pool), before);
}

TEST_P(StateTest, RefusesByName) {
  const Context backend = context();
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 3);
  const MirroredPool pool = pool_of(backend, inputs);
  const auto before = bytes_of(pool);
  StateArguments arguments(backend.info().device, {1, 2}, inputs.geometry);
  std::fill(arguments.values.begin(), arguments.values.end(), 1.0f);
  const auto expect_refusal = [&](lq_status status, const char* word) {
    EXPECT_EQ(status, LQ_INVALID_ARGUMENT);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
    pool.download();
    EXPECT_EQ(bytes_of(pool), before);
  };
  const auto import_with = [&](lq_tensor StateArguments::*member, const lq_tensor& wrong, const char* word) {
    const lq_tensor right = arguments.*member;
    arguments.*member = wrong;
    expect_refusal(arguments.enqueue_import(pool), word);
    arguments.*member = right;
  };
  const auto export_to = [&](const lq_tensor& wrong, const char* word) {
    expect_refusal(lq_pool_export_state(pool.pool().get(), &arguments.indices, &wrong, LQ_STATE_VK, nullptr), word);
  };
  for (const int order : {0, 3, -1}) {
    expect_refusal(arguments.enqueue_import(pool, static_cast<lq_state_order>(order)), "order: expected 1");
    expect_refusal(lq_pool_export_state(pool.pool().get(), &arguments.indices, &arguments.state,
                                        static_cast<lq_state_order>(order), nullptr),
                   "order: expected 1");
  }
  lq_tensor wrong = arguments.state;
  wrong.shape[1] = kHeads - 1;
  import_with(&StateArguments::state, wrong, "'state': expected float32 [2, 3, 128, 128]");
  export_to(wrong, "'state': expected float32 [2, 3, 128, 128]");
  wrong = arguments.state;
  wrong.dtype = LQ_FLOAT16;
  import_with(&StateArguments::state, wrong, "'state'");
  export_to(arguments.narrow_state, "'state': expected float32");
  wrong = arguments.state;
  wrong.strides[2] = 256;
  import_with(&StateArguments::state, wrong, "contiguous");
  wrong = arguments.state;
  wrong.strides[0] = 2 * wrong.strides[0];
  export_to(wrong, "contiguous");
  wrong = arguments.state;
  wrong.data = pool.device().raw.data;
  import_with(&StateArguments::state, wrong, "overlap with 'pool.raw'");
  export_to(wrong, "overlap with 'pool.raw'");
  wrong = arguments.indices;
  wrong.data = arguments.state.data;
  const lq_tensor indices = arguments.indices;
  arguments.indices = wrong;
  export_to(arguments.state, "overlap with 'idx'");
  arguments.indices = indices;
  wrong = arguments.offset;
  wrong.dtype = LQ_FLOAT32;
  import_with(&StateArguments::offset, wrong, "'offset'");
  wrong = arguments.q0;
  wrong.shape[1] = 3;
  import_with(&StateArguments::q0, wrong, "'q0'");
  for (const int32_t first : {-1, 16}) {
    if (!GetParam().backend.on_host()) break;  // reported: see below
    arguments.offset_values[4] = first;
    expect_refusal(arguments.enqueue_import(pool), "tensor 'offset': expected counters from 0 to 15, got");
  }
  EXPECT_EQ(lq_pool_import_state(pool.pool().get(), &arguments.indices, nullptr, LQ_STATE_VK, nullptr, &arguments.q0,
                                 nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_pool_export_state(nullptr, &arguments.indices, &arguments.state, LQ_STATE_VK, nullptr),
            LQ_INVALID_ARGUMENT);
}

// A device's memory is not looked at before the call: programs with such a counter keep every byte.
TEST_P(StateTest, OffsetsOutOfRangeAreReportedByDevices) {
  if (GetParam().backend.on_host()) return;  // refused: see above
  const Context backend = context();
  const judge::StepInputs inputs = filled_inputs(geometry(kHeads), 4);
  const MirroredPool pool = pool_of(backend, inputs);
  const MirroredPool before = pool_of(backend, inputs);
  StateArguments arguments(backend.info().device, {3, 1, 2}, inputs.geometry);
  std::fill(arguments.values.begin(), arguments.values.end(), 1.0f);
  arguments.set_offsets({0, 0, 15, 0, -1, 0, 16, 0, INT_MIN});
  arguments.run_import(pool, LQ_STATE_VK, false, true);
  const auto same = [&](int64_t slot, int64_t head) {
    const WindowProgram a = judge::slot_window(pool.host(), slot, head);
    const WindowProgram b = judge::slot_window(before.host(), slot, head);
    return std::memcmp(a.window_key, b.window_key, 4096) == 0 && pool.counter(slot, head) == before.counter(slot, head);
  };
  for (int64_t n = 0; n < 3 * kHeads; ++n) {
    const bool reported = n == 4 || n == 6 || n == 8;
    const int64_t slots[] = {3, 1, 2};
    EXPECT_EQ(same(slots[n / kHeads], n % kHeads), reported) << n;
  }
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_COUNTER);
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 1);
}

LQ_FOR_ALL_BACKENDS_AND_GATES(StateTest);

}  // namespace
}  // namespace leapquant::conformance
