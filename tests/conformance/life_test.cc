// SPDX-License-Identifier: Apache-2.0
//
// The life of slots: random sequences of all operations on a pool, every one compared with a model on the scalar
// reference. The backend that is the reference gives the model's bits; the others the model's bookkeeping bit for bit,
// and numbers within the bounds of step and flush.
//
// LQ_LIFE_SEQUENCES sets how many sequences run on the reference and on each backend's best instruction set; a device,
// which copies all of a pool around every call, gets a tenth of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sstream>

#include "draft_calls.h"
#include "judge/parallel.h"
#include "pool_model.h"
#include "ref/state.h"

namespace leapquant::conformance {
namespace {

using LifeTest = BackendTest;

constexpr int64_t kLifeSlots = 4;
constexpr int64_t kLifeHeads = 2;
constexpr int64_t kElements = 128 * 128;
constexpr int kOperations = 12;
// The reference is slow under sanitizers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSequences = 4;
#else
constexpr int kSequences = 64;
#endif

template <class T>
bool same_bytes(const std::vector<T>& a, const T* b) {
  return a.empty() || std::memcmp(a.data(), b, a.size() * sizeof(T)) == 0;
}

// |a - b| within a rounding step of bf16 and what fp32 sums lose: their terms are at least as large as the row, and
// those of an output as `terms` (a query nearly at right angles to the key leaves little of a value).
bool near_rows(const Bfloat16* a, const Bfloat16* b, int64_t count, float terms = 0) {
  float largest = terms / 10;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(to_float(b[i])));
  for (int64_t i = 0; i < count; ++i) {
    const float wanted = to_float(b[i]);
    if (!(std::abs(to_float(a[i]) - wanted) <= std::abs(wanted) / 128 + 1e-4f * largest)) return false;
  }
  return true;
}

// For messages: the element that differs most.
std::string largest_difference(const Bfloat16* a, const Bfloat16* b) {
  const auto difference = [&](int i) { return std::abs(to_float(a[i]) - to_float(b[i])); };
  int worst = 0;
  for (int i = 1; i < 128; ++i) worst = difference(i) > difference(worst) ? i : worst;
  std::ostringstream text;
  text << to_float(a[worst]) << " for " << to_float(b[worst]) << " at " << worst;
  return text.str();
}

double mean_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

// One pool beside its model.
class Life {
 public:
  Life(const BackendUnderTest& backend, Gate gate, uint32_t seed)
      : random_(seed),
        exact_(backend.name == "ref"),
        context_(context_of(backend, 1)),
        device_(context_.info().device),
        geometry_(drawn_geometry(gate)),
        pool_(context_, geometry_, kLifeSlots, below(2) == 0 ? LQ_LAYOUT_COMPACT : LQ_LAYOUT_PADDED),
        basis_(drawn_basis()),
        model_(geometry_, kLifeSlots, basis_) {}

  // Runs the sequence; returns what went wrong, or "".
  std::string run() {
    import_states();  // most lives begin with a prefill
    compare();
    for (int n = 0; n < kOperations && failure_.empty(); ++n) {
      model_.begin();
      const int32_t choice = below(16);
      if (choice < 3)
        step(false);
      else if (choice < 6)
        step(true);
      else if (choice < 7)
        flush();
      else if (choice < 8)
        flush_now();
      else if (choice < 9)
        reset();
      else if (choice < 10)
        copy();
      else if (choice < 11)
        export_states();
      else if (choice < 12)
        import_states();
      else if (choice < 13)
        spoil_counter();
      else
        speculate();
      compare();
      done_ += ' ';
      done_ += std::to_string(choice);
    }
    return failure_.empty() ? "" : failure_ + " after operations" + done_;
  }

 private:
  int32_t below(int32_t end) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(end)); }
  float normal() { return std::normal_distribution<float>()(random_); }

  Geometry drawn_geometry(Gate gate) {
    const int32_t rank = below(8) == 0 ? 1 << below(4) : 4;
    return gate == Gate::kKda ? geometry_of(kLifeHeads, rank) : gdn_geometry(kLifeHeads, rank, 1 + below(2));
  }

  std::vector<float> drawn_basis() {
    std::vector<float> basis(static_cast<size_t>(128 * geometry_.rank));
    for (float& value : basis) value = normal();
    return basis;
  }

  // One to three different slots, padding and foreign indices among them.
  std::vector<int32_t> order() {
    std::vector<int32_t> slots = {1, 2, 3};
    std::shuffle(slots.begin(), slots.end(), random_);
    slots.resize(static_cast<size_t>(1 + below(2)));
    if (below(8) == 0) slots.push_back(0);
    if (below(16) == 0) slots.insert(slots.begin(), static_cast<int32_t>(kLifeSlots));
    return slots;
  }

  judge::StepInputs drawn_tokens(int64_t count) {
    judge::StepInputs tokens;
    tokens.geometry = geometry_;
    tokens.batch = count;
    tokens.gate.function = judge::all_gate_functions()[static_cast<size_t>(below(3))];
    tokens.token = judge::TokenTensors(geometry_, count);
    for (auto* const tensor :
         {&tokens.token.qx, &tokens.token.kx, &tokens.token.vx, &tokens.token.a, &tokens.token.b}) {
      for (Bfloat16& value : *tensor) value = to_bfloat16(normal());
    }
    for (float& value : tokens.token.A_log) value = 0.5f * normal();
    for (float& value : tokens.token.dt_bias) value = 0.5f * normal() - 1;
    for (float& value : tokens.token.log_gate) value = -std::exp(normal() - 3);
    return tokens;
  }

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void require_rows(const std::vector<Bfloat16>& seen, const std::vector<Bfloat16>& wanted,
                    const judge::StepInputs& tokens, const char* what) {
    float largest_value = 0;
    for (const Bfloat16 value : tokens.token.vx) largest_value = std::max(largest_value, std::abs(to_float(value)));
    for (size_t row = 0; row < wanted.size(); row += 128) {
      const bool equal = std::equal(&wanted[row], &wanted[row] + 128, &seen[row],
                                    [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; });
      if (!equal && (exact_ || !near_rows(&seen[row], &wanted[row], 128, largest_value))) {
        fail(std::string(what) + " in row " + std::to_string(row / 128) + ": " +
             largest_difference(&seen[row], &wanted[row]));
      }
    }
  }

  // ---- operations --------------------------------------------------------------------------------------------------

  void step(bool with_flush) {
    const std::vector<int32_t> slots = order();
    const judge::StepInputs tokens = drawn_tokens(std::ssize(slots));
    StepArguments arguments(device_, slots, tokens, below(2) == 0 ? TokenForm::kPacked : TokenForm::kThreeTensors);
    std::vector<Bfloat16> wanted(arguments.output.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      model_.step(slots[i], tokens, static_cast<int64_t>(i), &wanted[i * kLifeHeads * 128]);
    }
    if (with_flush) {
      Mirrors mirrors(device_);
      arguments.step_flush(pool_, basis_tensor(mirrors));
      take_over_appended();
      for (const int32_t slot : slots) model_.flush(slot);
    } else {
      arguments.step(pool_);
    }
    require_rows(arguments.output, wanted, tokens, "the outputs of a step differ");
  }

  void flush() {
    with_indices(
        order(), [&](const lq_tensor& idx, const lq_tensor& q0) { pool_.pool().flush_inplace(idx, q0); },
        [&](int32_t slot) { model_.flush(slot); });
  }

  void flush_now() {
    with_indices(
        order(), [&](const lq_tensor& idx, const lq_tensor& q0) { pool_.pool().flush_now(idx, q0); },
        [&](int32_t slot) { model_.flush_now(slot); });
  }

  void reset() {
    with_indices(
        order(), [&](const lq_tensor& idx, const lq_tensor&) { pool_.pool().reset_slots(idx); },
        [&](int32_t slot) { model_.reset(slot); });
  }

  void copy() {
    std::vector<int32_t> slots = {1, 2, 3};
    std::shuffle(slots.begin(), slots.end(), random_);
    std::vector<int32_t> from = {slots[0], slots[0]};
    std::vector<int32_t> to = {slots[1], slots[2]};
    if (below(2) == 0) to[1] = below(2) == 0 ? 0 : static_cast<int32_t>(kLifeSlots);
    Mirrors mirrors(device_);
    const lq_tensor sources = mirrors.add(from);
    const lq_tensor targets = mirrors.add(to);
    with_copies([&] { pool_.pool().copy_slots(sources, targets); });
    for (size_t i = 0; i < 2; ++i) model_.copy(from[i], to[i]);
  }

  // Now and then a counter that no operation leaves.
  void spoil_counter() {
    const int64_t slot = 1 + below(kLifeSlots - 1);
    const int64_t head = below(kLifeHeads);
    if (below(4) != 0) return;
    pool_.counter(slot, head) = model_.at(slot, head).count = below(2) == 0 ? 17 : -1;
  }

  void export_states() {
    const std::vector<int32_t> slots = order();
    std::vector<float> states(slots.size() * kLifeHeads * kElements, NAN);
    const lq_state_order direction = below(2) == 0 ? LQ_STATE_VK : LQ_STATE_KV;
    std::vector<int32_t> indices = slots;
    Mirrors mirrors(device_);
    const lq_tensor idx = mirrors.add(indices);
    const lq_tensor state = mirrors.add(tensor(states.data(), LQ_FLOAT32, {std::ssize(slots), kLifeHeads, 128, 128}));
    with_copies([&] { pool_.pool().export_state(idx, state, direction); });
    mirrors.download();
    std::vector<float> wanted(kLifeHeads * kElements);
    for (size_t i = 0; i < slots.size(); ++i) {
      model_.export_state(slots[i], wanted.data());
      for (int64_t head = 0; head < kLifeHeads; ++head) {
        compare_state(&states[(i * kLifeHeads + static_cast<size_t>(head)) * kElements], direction,
                      &wanted[static_cast<size_t>(head) * kElements]);
      }
    }
  }

  void compare_state(const float* seen, lq_state_order direction, const float* wanted) {
    float largest = 0;
    for (int64_t i = 0; i < kElements; ++i) largest = std::max(largest, std::abs(wanted[i]));
    const float slack = exact_ ? 0.0f : 1e-5f * largest;
    for (int64_t v = 0; v < 128; ++v) {
      for (int64_t k = 0; k < 128; ++k) {
        const float value = direction == LQ_STATE_VK ? seen[v * 128 + k] : seen[k * 128 + v];
        if (!(std::abs(value - wanted[v * 128 + k]) <= slack)) return fail("an exported state differs");
      }
    }
  }

  void import_states() {
    const std::vector<int32_t> slots = order();
    const bool narrow = below(2) == 0;
    const lq_state_order direction = below(2) == 0 ? LQ_STATE_VK : LQ_STATE_KV;
    const auto count = std::ssize(slots);
    std::vector<float> states(slots.size() * kLifeHeads * kElements);
    std::vector<Bfloat16> narrow_states(states.size());
    std::vector<float> given(states.size());  // in the caller's order
    const float size = std::exp2(static_cast<float>(below(12) - 6));
    for (size_t i = 0; i < states.size(); ++i) {
      narrow_states[i] = to_bfloat16(size * cheap_noise());
      given[i] = to_float(narrow_states[i]);
      const size_t v = i / 128 % 128;
      const size_t k = i % 128;
      const size_t place = direction == LQ_STATE_VK ? i : i - i % kElements + k * 128 + v;
      states[place] = given[i];
    }
    std::vector<int32_t> offsets(slots.size() * kLifeHeads);
    const bool with_offsets = below(2) == 0;
    if (with_offsets) std::generate(offsets.begin(), offsets.end(), [&] { return below(16); });
    std::vector<int32_t> indices = slots;
    Mirrors mirrors(device_);
    const lq_tensor idx = mirrors.add(indices);
    const lq_tensor q0 = basis_tensor(mirrors);
    const lq_tensor state =
        mirrors.add(narrow ? tensor(narrow_states.data(), LQ_BFLOAT16, {count, kLifeHeads, 128, 128})
                           : tensor(given.data(), LQ_FLOAT32, {count, kLifeHeads, 128, 128}));
    const lq_tensor offset = mirrors.add(tensor(offsets.data(), LQ_INT32, {count, kLifeHeads}));
    with_copies([&] { pool_.pool().import_state(idx, state, direction, with_offsets ? &offset : nullptr, q0); });
    for (size_t i = 0; i < slots.size(); ++i) {
      model_.import_state(slots[i], {&states[i * kLifeHeads * kElements], static_cast<size_t>(kLifeHeads * kElements)},
                          {&offsets[i * kLifeHeads], static_cast<size_t>(kLifeHeads)});
    }
  }

  // Four bytes' sum: near enough to normal for a state.
  float cheap_noise() {
    const uint32_t bits = random_();
    const auto byte = [&](int n) { return static_cast<float>(bits >> 8 * n & 255u); };
    return (byte(0) + byte(1) + byte(2) + byte(3)) / 148.0f - 3.446f;
  }

  // A draft, sometimes something else in between, and a commit of some of it, sometimes twice.
  void speculate() {
    const std::vector<int32_t> slots = order();
    const int32_t count = 1 + below(8);
    const judge::StepInputs tokens = drawn_tokens(std::ssize(slots) * count);
    DraftArguments arguments(device_, slots, count, tokens, model_.start_basis());
    arguments.draft(pool_);
    std::vector<Bfloat16> wanted(arguments.output.size());
    std::vector<std::vector<ModelDraft>> drafts;
    for (size_t i = 0; i < slots.size(); ++i) {
      std::vector<DraftProgram> seen;
      for (int64_t head = 0; head < kLifeHeads && !exact_; ++head) {
        seen.push_back(arguments.record(static_cast<int64_t>(i), head));
      }
      drafts.push_back(model_.draft(slots[i], tokens, static_cast<int64_t>(i) * count, count, seen,
                                    &wanted[i * static_cast<size_t>(count) * kLifeHeads * 128]));
    }
    require_rows(arguments.output, wanted, tokens, "the outputs of a draft differ");
    compare();
    for (size_t i = 0; i < slots.size(); ++i) take_over_drafts(arguments, static_cast<int64_t>(i), drafts[i]);
    if (below(8) == 0) {
      step(true);
      compare();
    }
    for (int commits = below(16) == 0 ? 2 : 1; commits > 0; --commits) {
      model_.begin();
      std::vector<int32_t> accepted(slots.size());
      for (int32_t& tokens_taken : accepted) tokens_taken = below(count + 1);
      arguments.commit(pool_, accepted);
      for (size_t i = 0; i < slots.size(); ++i) model_.commit(slots[i], drafts[i], accepted[i]);
      compare();
    }
    model_.begin();
  }

  lq_tensor basis_tensor(Mirrors& mirrors) {
    return mirrors.add(tensor(basis_.data(), LQ_FLOAT32, {128, geometry_.rank}));
  }

  template <class Call>
  void with_copies(const Call& call) {
    pool_.upload();
    call();
    pool_.download();
  }

  template <class Call, class ModelCall>
  void with_indices(std::vector<int32_t> slots, const Call& call, const ModelCall& model_call) {
    Mirrors mirrors(device_);
    const lq_tensor idx = mirrors.add(slots);
    const lq_tensor q0 = basis_tensor(mirrors);
    with_copies([&] { call(idx, q0); });
    for (const int32_t slot : slots) model_call(slot);
  }

  // ---- comparison --------------------------------------------------------------------------------------------------

  CheckpointProgram pool_checkpoint(int64_t slot, int64_t head) const {
    const lq_pool_tensors& p = pool_.host();
    const auto at = [&]<class T>(const lq_tensor& t, T) {
      return static_cast<T*>(t.data) + slot * t.strides[0] + head * t.strides[1];
    };
    Half* const factors = at(p.uq, Half{});
    return {at(p.codes, int8_t{}), at(p.s_k, 0.0f), at(p.s_v, 0.0f), factors,
            factors + 128,         p.uq.strides[2], p.uq.strides[2]};
  }

  // All programs; the model then goes on from what the pool holds.
  void compare() {
    const lq_pool_errors errors = pool_.read_errors();
    if (errors.flags != model_.errors) fail("the error word differs");
    model_.errors = 0;
    for (int64_t slot = 0; slot < kLifeSlots; ++slot) {
      for (int64_t head = 0; head < kLifeHeads; ++head) compare_program(slot, head);
    }
  }

  void compare_program(int64_t slot, int64_t head) {
    ModelProgram& model = model_.at(slot, head);
    const WindowProgram window = judge::slot_window(pool_.host(), slot, head);
    const CheckpointProgram checkpoint = pool_checkpoint(slot, head);
    if (pool_.counter(slot, head) != model.count) fail("a counter differs");
    if (!same_bytes(model.window_weight, window.window_weight)) fail("weights differ");
    if (exact_ || model.touch == Touch::kNothing || model.touch == Touch::kReplaced) {
      if (!same_window(model, window)) fail("a window differs");
      if (!same_checkpoint(model, checkpoint)) fail("a checkpoint differs");
      return;
    }
    compare_window(model, window);
    if (model.touch == Touch::kQuantized) {
      compare_checkpoint(model, checkpoint);
    } else if (!same_checkpoint(model, checkpoint)) {
      fail("a step changed a checkpoint");
    }
    take_over(model, checkpoint, window);
  }

  static bool same_window(const ModelProgram& model, const WindowProgram& window) {
    return same_bytes(model.window_key, window.window_key) && same_bytes(model.window_update, window.window_update) &&
           same_bytes(model.window_gate, window.window_gate) && same_bytes(model.log_decay, window.log_decay) &&
           (window.decay == nullptr || *window.decay == model.decay);
  }

  bool same_checkpoint(const ModelProgram& model, const CheckpointProgram& checkpoint) const {
    bool same = same_bytes(model.codes, checkpoint.codes) && same_bytes(model.key_scale, checkpoint.key_scale) &&
                same_bytes(model.value_scale, checkpoint.value_scale);
    for (int64_t r = 0; r < geometry_.rank; ++r) {
      same = same &&
             std::memcmp(&model.key_factor[r * 128], checkpoint.key_factor + r * checkpoint.key_factor_row, 256) == 0;
      same = same && std::memcmp(&model.value_factor[r * 128],
                                 checkpoint.value_factor + r * checkpoint.value_factor_row, 256) == 0;
    }
    return same;
  }

  void compare_window(const ModelProgram& model, const WindowProgram& window) {
    for (int64_t j = 0; j < 16; ++j) {
      if (!near_rows(window.window_key + j * 128, &model.window_key[j * 128], 128)) fail("a key row differs");
      if (!near_rows(window.window_update + j * 128, &model.window_update[j * 128], 128)) fail("an update row differs");
    }
    if (window.decay != nullptr && *window.decay != model.decay) fail("a decay differs");
    for (size_t i = 0; i < model.window_gate.size(); ++i) {
      const float wanted = to_float(model.window_gate[i]);
      if (!(std::abs(to_float(window.window_gate[i]) - wanted) <= wanted / 512 + 1e-7f)) fail("a gate differs");
    }
    for (size_t k = 0; k < model.log_decay.size(); ++k) {
      const float wanted = model.log_decay[k];
      if (!(std::abs(window.log_decay[k] - wanted) <= 1e-5f * (std::abs(wanted) + 1))) fail("a log-decay differs");
    }
  }

  // As far from the state as the reference's checkpoint is, by the bound of the flush.
  void compare_checkpoint(ModelProgram& model, const CheckpointProgram& checkpoint) {
    const std::vector<double> seen = ref::decode(geometry_, checkpoint);
    const double error = mean_distance(seen, model.quantized);
    const double reference = mean_distance(ref::decode(geometry_, model.checkpoint()), model.quantized);
    const double size = mean_distance(std::vector<double>(model.quantized.size()), model.quantized);
    const double bound = reference >= 1e-4 * size && reference > 0 ? 1.01 * reference : 1e-3 * size;
    if (!(error <= bound)) fail("a checkpoint is further from its state than the bound allows");
  }

  void take_over(ModelProgram& model, const CheckpointProgram& checkpoint, const WindowProgram& window) const {
    std::copy_n(checkpoint.codes, kElements, model.codes.begin());
    std::copy_n(checkpoint.key_scale, 128, model.key_scale.begin());
    std::copy_n(checkpoint.value_scale, 128, model.value_scale.begin());
    for (int64_t r = 0; r < geometry_.rank; ++r) {
      std::copy_n(checkpoint.key_factor + r * checkpoint.key_factor_row, 128, model.key_factor.begin() + r * 128);
      std::copy_n(checkpoint.value_factor + r * checkpoint.value_factor_row, 128, model.value_factor.begin() + r * 128);
    }
    take_over_rows(model, window);
    std::copy_n(window.log_decay, model.log_decay.size(), model.log_decay.begin());
    std::copy_n(window.window_gate, model.window_gate.size(), model.window_gate.begin());
  }

  static void take_over_rows(ModelProgram& model, const WindowProgram& window) {
    std::copy_n(window.window_key, 2048, model.window_key.begin());
    std::copy_n(window.window_update, 2048, model.window_update.begin());
  }

  // Before the flush of the same call: a flush leaves the rows of keys and updates, and those are what it has stored.
  void take_over_appended() {
    if (exact_) return;
    for (int64_t slot = 1; slot < kLifeSlots; ++slot) {
      for (int64_t head = 0; head < kLifeHeads; ++head) {
        ModelProgram& model = model_.at(slot, head);
        if (model.touch != Touch::kAppended || model.count != 16) continue;
        const WindowProgram window = judge::slot_window(pool_.host(), slot, head);
        for (int64_t j = 0; j < 16; ++j) {
          if (!near_rows(window.window_key + j * 128, &model.window_key[j * 128], 128)) fail("a key row differs");
          if (!near_rows(window.window_update + j * 128, &model.window_update[j * 128], 128))
            fail("an update row differs");
        }
        take_over_rows(model, window);
      }
    }
  }

  void take_over_drafts(DraftArguments& arguments, int64_t position, std::vector<ModelDraft>& drafts) {
    for (int64_t head = 0; head < kLifeHeads; ++head) {
      ModelDraft& draft = drafts[static_cast<size_t>(head)];
      const DraftProgram record = arguments.record(position, head);
      if (record.header->tokens != (draft.made ? arguments.token_count : 0)) fail("a draft's record differs");
      if (!draft.made) continue;
      const int64_t rows = arguments.token_count;
      for (int64_t t = 0; t < rows; ++t) {
        if (!near_rows(record.key + t * 128, &draft.key[t * 128], 128)) fail("a drafted key differs");
        if (!near_rows(record.update + t * 128, &draft.update[t * 128], 128)) fail("a drafted update differs");
      }
      for (size_t i = 0; i < draft.log_gate.size(); ++i) {
        const float wanted = draft.log_gate[i];
        if (!(std::abs(record.log_gate[i] - wanted) <= 1e-5f * (std::abs(wanted) + 1))) fail("a drafted gate differs");
      }
      for (int64_t t = 0; record.token_decay != nullptr && t < rows; ++t) {
        if (record.token_decay[t] != draft.token_decay[static_cast<size_t>(t)]) fail("a drafted decay differs");
      }
      if (exact_) continue;
      std::copy_n(record.key, rows * 128, draft.key.begin());
      std::copy_n(record.update, rows * 128, draft.update.begin());
      std::copy_n(record.gate, draft.gate.size(), draft.gate.begin());
      std::copy_n(record.log_gate, draft.log_gate.size(), draft.log_gate.begin());
    }
  }

  std::mt19937 random_;
  bool exact_;
  Context context_;
  lq_device device_;
  Geometry geometry_;
  MirroredPool pool_;
  std::vector<float> basis_;
  PoolModel model_;
  std::string failure_;
  std::string done_;
};

int64_t sequences(const BackendUnderTest& backend) {
  const char* const text = std::getenv("LQ_LIFE_SEQUENCES");
  const std::vector<BackendUnderTest> all = backends_under_test();
  const auto best =
      std::find_if(all.begin(), all.end(), [&](const BackendUnderTest& other) { return other.name == backend.name; });
  if (text == nullptr || best->target != backend.target) return repetitions(kSequences);
  const int64_t wanted = std::strtoll(text, nullptr, 10);
  return backend.on_host() ? wanted : (wanted + 9) / 10;
}

TEST_P(LifeTest, RandomSequencesAgreeWithTheReferencesModel) {
  for (const Gate gate : {Gate::kKda, Gate::kGdn}) {
    judge::parallel_for(sequences(GetParam()), 0, [&](int64_t n) {
      const std::string failure = Life(GetParam(), gate, static_cast<uint32_t>(n)).run();
      EXPECT_EQ(failure, "") << gate_name(gate) << ", sequence " << n;
    });
  }
}

LQ_FOR_ALL_BACKENDS(LifeTest);

}  // namespace
}  // namespace leapquant::conformance
