// SPDX-License-Identifier: Apache-2.0
//
// Times in-place flushes and steps of a pool in the memory of a GPU, and the streams of as many bytes that are their
// limits.
#pragma once

#include "bench/flush_bench.h"
#include "bench/limits.h"
#include "bench/step_bench.h"

namespace leapquant::bench {

// Device time of one flush out of eight in a CUDA graph. The eight flush disjoint sets of slots in rotation, so that
// each finds its data outside the L2 cache. Checkpoints and windows are put back before every replay, so that all flush
// the same programs: checkpoints that stayed would absorb one window again and again, and degenerate.
// Programs, bytes and time are those of one flush: where the due programs are drawn, the mean of the eight.
FlushTiming time_flush_on_gpu(const Context& context, const FlushCase& flush_case);

// The same of one step, or of one token of a cycle, which is as many rounds of the eight sets as a window has entries.
// What it changes is put back before every replay.
StepTiming time_step_on_gpu(const Context& context, const StepCase& step_case);

// Microseconds of a stream, in a graph like that of the steps, that reads `bytes`.
double time_read_on_gpu(int32_t device, int64_t bytes);

// Times copies, in a graph like that of the flushes, that read half of `bytes` and write as many.
StreamTiming time_stream_on_gpu(int32_t device, int64_t bytes);

GpuDescription describe_gpu(int32_t device);

}  // namespace leapquant::bench
