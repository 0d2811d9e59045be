// SPDX-License-Identifier: Apache-2.0
//
// Rows of thin matrices, whose columns belong to factors.
#pragma once

namespace leapquant::cuda {

template <int kColumns>
using ThinRow = float[kColumns];

// 16 bytes at a time.
template <int kColumns>
__device__ __forceinline__ void load_row(const ThinRow<kColumns>& source, ThinRow<kColumns>& row) {
#pragma unroll
  for (int r = 0; r < kColumns; r += 4) {
    const float4 part = *reinterpret_cast<const float4*>(source + r);
    row[r] = part.x;
    row[r + 1] = part.y;
    row[r + 2] = part.z;
    row[r + 3] = part.w;
  }
}

}  // namespace leapquant::cuda
