// SPDX-License-Identifier: Apache-2.0
//
// The import and the export of one program's state on one core: the flush's own steps behind a dense state, or before
// one. An export followed by an import gives the bits of a flush.
//
// Included once per instruction set by foreach_target.
#if defined(LQ_CPU_STATE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LQ_CPU_STATE_KERNEL_INL_H_
#undef LQ_CPU_STATE_KERNEL_INL_H_
#else
#define LQ_CPU_STATE_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/flush_kernel-inl.h"
#include "cpu/state_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace leapquant::cpu::HWY_NAMESPACE {

// Rows of [V, K] are the workspace's own; those of [K, V] are its columns, sixteen elements at a time.
template <class Element>
HWY_INLINE void load_state(const Element* HWY_RESTRICT from, StateOrder order, float* HWY_RESTRICT state) {
  if (order == StateOrder::kValueKey) {
    for (size_t v = 0; v < kValueDim; ++v) {
      for (size_t k = 0; k < kKeyDim; k += 16) store16(load16(from + v * kKeyDim + k), state + v * kStateRow + k);
    }
    return;
  }
  for (size_t v = 0; v < kValueDim; v += 16) {
    for (size_t k = 0; k < kKeyDim; ++k) {
      float column[16];
      store16(load16(from + k * kValueDim + v), column);
      for (size_t i = 0; i < 16; ++i) state[(v + i) * kStateRow + k] = column[i];
    }
  }
}

HWY_INLINE void store_state(const float* HWY_RESTRICT state, StateOrder order, float* HWY_RESTRICT to) {
  if (order == StateOrder::kValueKey) {
    for (size_t v = 0; v < kValueDim; ++v) {
      for (size_t k = 0; k < kKeyDim; k += 16) store16(load16(state + v * kStateRow + k), to + v * kKeyDim + k);
    }
    return;
  }
  for (size_t v = 0; v < kValueDim; v += 16) {
    for (size_t k = 0; k < kKeyDim; ++k) {
      float column[16];
      for (size_t i = 0; i < 16; ++i) column[i] = state[(v + i) * kStateRow + k];
      store16(load16(column), to + k * kValueDim + v);
    }
  }
}

template <size_t kRank>
bool import_state(const DenseState& from, const CheckpointProgram& target, FlushWorkspace& workspace) {
  if (from.dtype == DType::kBfloat16) {
    load_state(static_cast<const Bfloat16*>(from.data), from.order, workspace.state);
  } else {
    load_state(static_cast<const float*>(from.data), from.order, workspace.state);
  }
  multiply_transposed_state<kRank>(workspace.start, workspace);
  return store_checkpoint<kRank>(target, workspace);
}

template <size_t kRank>
void export_state(Gate gate, const CheckpointProgram& source, const WindowProgram& window, const DenseState& to,
                  FlushWorkspace& workspace) {
  const size_t inner = prepare_products<kRank>(gate, source, window, workspace);
  rebuild(source, inner, workspace, [](const Tile&, size_t, size_t) HWY_ATTR {});
  store_state(workspace.state, to.order, static_cast<float*>(to.data));
}

template <size_t kRank>
StateKernel state_kernel_of_rank() {
  return {&import_state<kRank>, &export_state<kRank>};
}

inline StateKernel state_kernel(int32_t rank) {
  switch (rank) {
    case 1:
      return state_kernel_of_rank<1>();
    case 2:
      return state_kernel_of_rank<2>();
    case 4:
      return state_kernel_of_rank<4>();
    default:
      return state_kernel_of_rank<8>();
  }
}

}  // namespace leapquant::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LQ_CPU_STATE_KERNEL_INL_H_
