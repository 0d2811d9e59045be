// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/arguments.h"

#include <limits>
#include <string>

namespace leapquant::cuda {

namespace {

bool is_aligned(const ProgramBytes& tensor, const ProgramCounts& counts, int64_t row) {
  int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.base) % kAlignment);
  if (counts.items > 1) misaligned |= tensor.item_stride % kAlignment;
  if (counts.heads > 1) misaligned |= tensor.head_stride % kAlignment;
  misaligned |= row % kAlignment;
  return misaligned == 0;
}

Status misaligned(const std::string& name) {
  return unsupported("backend 'cuda' needs every program of tensor '" + name +
                     "' at a multiple of 16 bytes; copy it to aligned memory");
}

}  // namespace

Status check_alignment(const char* name, const ProgramBytes& tensor, const ProgramCounts& counts) {
  return is_aligned(tensor, counts, 0) ? Status() : misaligned(name);
}

Status check_checkpoint(const char* prefix, const CheckpointView& checkpoint, const ProgramCounts& counts,
                        int32_t rank) {
  const FactorRows rows = rank > 1 ? factor_rows(checkpoint) : FactorRows{};
  const auto check = [&](const char* name, const auto& tensor, int64_t row = 0) {
    return is_aligned(in_bytes(tensor), counts, row) ? Status() : misaligned(std::string(prefix) + name);
  };
  LQ_RETURN_IF_ERROR(check("codes", checkpoint.codes));
  LQ_RETURN_IF_ERROR(check("s_k", checkpoint.key_scale));
  LQ_RETURN_IF_ERROR(check("s_v", checkpoint.value_scale));
  LQ_RETURN_IF_ERROR(check("u", checkpoint.key_factor, rows.key));
  return check("q", checkpoint.value_factor, rows.value);
}

// Tensors of the other gate are null, and pass.
Status check_window(const WindowView& window, const ProgramCounts& counts) {
  LQ_RETURN_IF_ERROR(check_alignment("kbuf", in_bytes(window.window_key), counts));
  LQ_RETURN_IF_ERROR(check_alignment("ubuf", in_bytes(window.window_update), counts));
  LQ_RETURN_IF_ERROR(check_alignment("w", in_bytes(window.window_weight), counts));
  LQ_RETURN_IF_ERROR(check_alignment("gbuf", in_bytes(window.window_gate), counts));
  return check_alignment("pcum", in_bytes(window.log_decay), counts);
}

Status check_programs(const char* verb, int64_t programs) {
  if (programs <= std::numeric_limits<int32_t>::max()) return {};
  return unsupported(std::string("backend 'cuda' ") + verb + " at most 2147483647 programs a call, got " +
                     std::to_string(programs));
}

void set_checkpoint(const CheckpointView& checkpoint, ProgramBytes* tensor) {
  tensor[kCodes] = in_bytes(checkpoint.codes);
  tensor[kKeyScale] = in_bytes(checkpoint.key_scale);
  tensor[kValueScale] = in_bytes(checkpoint.value_scale);
  tensor[kKeyFactor] = in_bytes(checkpoint.key_factor);
  tensor[kValueFactor] = in_bytes(checkpoint.value_factor);
}

void set_window(const WindowView& window, Decay decay, ProgramBytes* tensor) {
  tensor[kWindowKey] = in_bytes(window.window_key);
  tensor[kWindowUpdate] = in_bytes(window.window_update);
  tensor[kWindowWeight] = in_bytes(window.window_weight);
  tensor[kWindowGate] = in_bytes(window.window_gate);
  tensor[kCheckpointDecay] = decay == Decay::kByHead ? in_bytes(window.decay) : in_bytes(window.log_decay);
}

FactorRows factor_rows(const CheckpointView& checkpoint) {
  constexpr int64_t kHalfBytes = sizeof(Half);
  return {checkpoint.key_factor_row * kHalfBytes, checkpoint.value_factor_row * kHalfBytes};
}

}  // namespace leapquant::cuda
