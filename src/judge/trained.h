// SPDX-License-Identifier: Apache-2.0
//
// The trained family: states and windows of a trained model, cut from its recorded trajectory.
//
// A track is one head of one layer on one sequence. Its recurrence (docs/format.md, the step) runs in double from the
// zero state. A program is a start token t of a track: its checkpoint is the dense state before t, quantized in double,
// and its window the entries of tokens t to t + L - 1, rounded as the step rounds them. Programs take tracks in turn
// and jump about in t, so that a small batch already sees all tracks, early and late states, and every t modulo L; once
// every start has been used they come round again. Head counts are made by taking programs as heads. A seed moves the
// starts.
#pragma once

#include "core/status.h"
#include "judge/tensors.h"
#include "judge/trajectory.h"

namespace leapquant::judge {

// Fills checkpoint and window of `inputs`, whose geometry and start basis are set.
Status draw_trained(const Trajectory& trajectory, uint64_t seed, int threads, FlushInputs& inputs);

}  // namespace leapquant::judge
