// SPDX-License-Identifier: Apache-2.0
//
// Times the in-place flush of a pool in the memory of a GPU, and the copy of as many bytes that is its limit.
#pragma once

#include "bench/flush_bench.h"
#include "bench/limits.h"

namespace leapquant::bench {

// Device time of one flush out of eight in a CUDA graph. The eight flush disjoint sets of slots in rotation, so that
// each finds its data outside the L2 cache. Windows are put back between the replays, so that each does the same work.
// Programs, bytes and time are those of one flush: where the due programs are drawn, the mean of the eight.
FlushTiming time_flush_on_gpu(const Context& context, const FlushCase& flush_case);

// Times copies, in a graph like that of the flushes, that read half of `bytes` and write as many.
StreamTiming time_stream_on_gpu(int32_t device, int64_t bytes);

GpuDescription describe_gpu(int32_t device);

}  // namespace leapquant::bench
