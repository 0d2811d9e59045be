// SPDX-License-Identifier: Apache-2.0
//
// Which programs an in-place flush works on: thousands of random counters and index vectors, against the selection that
// the backends on host memory share.
#include <algorithm>
#include <climits>
#include <numeric>
#include <random>

#include "backends.h"
#include "plan/host_backend.h"

namespace leapquant::conformance {
namespace {

struct Shape {
  int32_t heads;
  int64_t slots;
  int share;  // of all masks, in 64ths
};

// Few and many programs, and enough of them for several passes over the counters on any device.
constexpr Shape kShapes[] = {{1, 40, 13}, {4, 9, 13},   {12, 17, 13}, {32, 5, 12},
                             {96, 3, 11}, {32, 150, 1}, {96, 70, 1}};

// One call's counters [slots, heads] and indices.
struct Mask {
  std::vector<int32_t> counters;
  std::vector<int32_t> indices;
};

class MaskSource {
 public:
  MaskSource(const Shape& shape, uint64_t seed) : shape_(shape), random_(seed) {}

  Mask draw() {
    Mask mask;
    mask.counters.resize(static_cast<size_t>(shape_.slots * shape_.heads));
    constexpr int32_t kOneIn[] = {1, 2, 5, 16, 64, INT_MAX};
    const int32_t one_in = kOneIn[below(6)];
    for (int32_t& counter : mask.counters) counter = below(one_in) == 0 ? 16 : other_counter();
    mask.indices = draw_indices();
    return mask;
  }

  // The most indices that a mask has.
  int64_t longest() const { return 2 * shape_.slots + kPadding; }

 private:
  static constexpr int64_t kPadding = 8;

  int32_t below(int64_t end) {
    return std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(end - 1))(random_);
  }

  int32_t other_counter() {
    constexpr int32_t kRare[] = {17, -1, INT_MAX, INT_MIN, 32, -16};
    return below(4) == 0 ? kRare[below(6)] : below(16);
  }

  int32_t other_index() {
    const int32_t values[] = {0,
                              0,
                              -1,
                              INT_MIN,
                              static_cast<int32_t>(shape_.slots),
                              INT_MAX,
                              static_cast<int32_t>(shape_.slots) + below(100)};
    return values[below(std::size(values))];
  }

  // Some of the slots in any order, each at most once, among indices that name none.
  std::vector<int32_t> draw_indices() {
    std::vector<int32_t> indices(static_cast<size_t>(shape_.slots - 1));
    std::iota(indices.begin(), indices.end(), 1);
    std::shuffle(indices.begin(), indices.end(), random_);
    if (below(2) == 0) indices.resize(static_cast<size_t>(below(shape_.slots)));
    const int64_t room = longest() - std::ssize(indices);
    for (int64_t n = below(4) == 0 ? room : below(kPadding); n > 0; --n) indices.push_back(other_index());
    if (below(8) != 0) std::shuffle(indices.begin(), indices.end(), random_);
    return indices;
  }

  Shape shape_;
  std::mt19937_64 random_;
};

// What a call must leave behind: weights that were all 1, and the error word.
struct Expectation {
  std::vector<float> weights;  // [slots, heads, 16]
  ErrorWord errors;
  int64_t due = 0;
};

Expectation expectation_of(const Shape& shape, const Mask& mask) {
  Expectation expected{std::vector<float>(mask.counters.size() * 16, 1.0f), {}, 0};
  FlushPlan plan;
  plan.geometry = geometry_of(shape.heads);
  plan.batch = std::ssize(mask.indices);
  plan.in_place = true;
  plan.due = {
      .slot_index = mask.indices.data(),
      .fill_count = {.base = const_cast<int32_t*>(mask.counters.data()), .item_stride = shape.heads, .head_stride = 1},
      .num_slots = shape.slots,
      .errors = &expected.errors};
  for (int64_t n = 0; n < plan.programs(); ++n) {
    const std::optional<DueProgram> due = due_program(plan, n);
    if (!due) continue;
    ++expected.due;
    std::fill_n(expected.weights.begin() + (due->item * shape.heads + due->head) * 16, 16, 0.0f);
  }
  return expected;
}

class SelectionTest : public BackendTest {
 protected:
  // A device sees 65,536 of them. A host backend, whose selection is the expectation's own, sees as many as take a
  // second, and few where a sanitizer slows the flush itself down.
  static int total_masks() {
    if (!GetParam().on_host()) return repetitions(65536);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 64;
#else
    return GetParam().name == "cpu" ? 1024 : 64;
#endif
  }

  void expect_selection(const MirroredPool& pool, InplaceArguments& arguments, const Shape& shape, const Mask& mask) {
    std::copy(mask.counters.begin(), mask.counters.end(), static_cast<int32_t*>(pool.host().hcnt.data));
    std::fill_n(static_cast<float*>(pool.host().w.data), mask.counters.size() * 16, 1.0f);
    pool.upload(&lq_pool_tensors::hcnt);
    pool.upload(&lq_pool_tensors::w);
    arguments.set_indices(mask.indices);
    pool.pool().flush_inplace(arguments.indices, arguments.q0);
    pool.download(&lq_pool_tensors::w);
    const Expectation expected = expectation_of(shape, mask);
    const auto* const weights = static_cast<const float*>(pool.host().w.data);
    ASSERT_TRUE(std::equal(expected.weights.begin(), expected.weights.end(), weights));
    const lq_pool_errors errors = pool.read_errors();
    const int32_t index_error = expected.errors.first_position[LQ_ERROR_INDEX];
    ASSERT_EQ(errors.first_position[LQ_ERROR_INDEX], index_error == kNoPosition ? -1 : index_error);
    ASSERT_EQ(errors.flags & ~(1u << LQ_ERROR_INDEX), 0u);
    due_ += expected.due;
    programs_ += std::ssize(mask.indices) * shape.heads;
  }

  int64_t due_ = 0;  // of all masks
  int64_t programs_ = 0;
};

TEST_P(SelectionTest, RandomMasks) {
  const Context backend = context(2);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.heads) + " heads, " + std::to_string(shape.slots) + " slots");
    const MirroredPool pool(backend, geometry_of(shape.heads), shape.slots);
    MaskSource source(shape, 29);
    const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry_of(shape.heads), 1);
    InplaceArguments arguments(pool.device().raw.device, std::vector<int32_t>(static_cast<size_t>(source.longest())),
                               basis);
    for (int n = 0; n < total_masks() * shape.share / 64; ++n) {
      const Mask mask = source.draw();
      expect_selection(pool, arguments, shape, mask);
      if (HasFatalFailure()) FAIL() << "mask " << n;
      if (n % 64 != 0) continue;
      pool.download(&lq_pool_tensors::hcnt);
      ASSERT_TRUE(std::equal(mask.counters.begin(), mask.counters.end(),
                             static_cast<const int32_t*>(pool.host().hcnt.data)));  // never written
    }
    EXPECT_GT(due_, programs_ / 64);
    EXPECT_LT(due_, programs_ / 2);
    pool.download(&lq_pool_tensors::raw);
    const auto* const slot_0 = static_cast<const int8_t*>(pool.host().codes.data);
    EXPECT_TRUE(std::all_of(slot_0, slot_0 + pool.host().codes.strides[0], [](int8_t byte) { return byte == 0; }));
  }
}

LQ_FOR_ALL_BACKENDS(SelectionTest);

}  // namespace
}  // namespace leapquant::conformance
