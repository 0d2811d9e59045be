// SPDX-License-Identifier: Apache-2.0
//
// Verification of the step through the library's public interface, as judge/verify.h is for the flush.
#pragma once

#include "judge/step_families.h"
#include "judge/step_judge.h"
#include "judge/verify.h"

namespace leapquant::judge {

// The tensors as the public interface takes them. They view the memory of their argument.
lq_tensor public_entries(const StepInputs& inputs);
lq_token public_token(const StepInputs& inputs);
lq_step_params public_params(const GateRule& rule);
lq_step_result public_result(const StepTensors& tensors);

// The members of a token and of a result.
inline constexpr lq_tensor lq_token::*kTokenMembers[] = {&lq_token::mixed, &lq_token::qx,      &lq_token::kx,
                                                         &lq_token::vx,    &lq_token::a,       &lq_token::b,
                                                         &lq_token::A_log, &lq_token::dt_bias, &lq_token::log_gate};
inline constexpr lq_tensor lq_step_result::*kResultMembers[] = {
    &lq_step_result::o,     &lq_step_result::k_row,    &lq_step_result::u_row, &lq_step_result::g_row,
    &lq_step_result::w_new, &lq_step_result::pcum_new, &lq_step_result::p_new};

// Steps `inputs` in the functional form. The tensors of the call lie on `place`. Throws Error where that memory fails.
Result<StepTensors> step(const Context& context, const StepInputs& inputs, lq_device place = kCpuDevice);

// Draws, steps where the context works, and judges. Every batch size has numbers of its own.
Result<StepJudgement> verify_step(const Context& context, const StepRequest& request);

}  // namespace leapquant::judge
