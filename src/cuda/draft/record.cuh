// SPDX-License-Identifier: Apache-2.0
//
// One program's record of drafted tokens, in global memory.
#pragma once

#include "cuda/draft/config.h"

namespace leapquant::cuda::draft {

class Record {
 public:
  __device__ __forceinline__ Record(const Records& records, uint32_t program)
      : bytes_(records.base + int64_t{program} * records.bytes), offset_(records.offset) {}

  __device__ __forceinline__ Header& header() const { return *reinterpret_cast<Header*>(bytes_); }
  // Rows of token t.
  __device__ __forceinline__ uint16_t* key(uint32_t t) const { return row<uint16_t>(offset_.key, t); }
  __device__ __forceinline__ uint16_t* update(uint32_t t) const { return row<uint16_t>(offset_.update, t); }
  __device__ __forceinline__ uint16_t* gate(uint32_t t) const { return row<uint16_t>(offset_.gate, t); }
  __device__ __forceinline__ float* log_gate(uint32_t t) const { return row<float>(offset_.log_gate, t); }
  __device__ __forceinline__ float& token_decay(uint32_t t) const { return at<float>(offset_.token_decay)[t]; }
  __device__ __forceinline__ float* weight() const { return at<float>(offset_.weight); }

 private:
  template <class T>
  __device__ __forceinline__ T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(bytes_ + offset);
  }
  template <class T>
  __device__ __forceinline__ T* row(uint32_t offset, uint32_t t) const {
    return at<T>(offset) + t * kDim;
  }

  char* bytes_;
  const RecordOffsets& offset_;
};

}  // namespace leapquant::cuda::draft
