// SPDX-License-Identifier: Apache-2.0
#include "judge/step_families.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/append_weight.h"
#include "judge/names.h"
#include "judge/parallel.h"
#include "judge/structured.h"
#include "ref/step.h"

namespace leapquant::judge {
namespace {

constexpr std::array kFamilies = {StepFamily::kStructured, StepFamily::kNext, StepFamily::kRandom};
constexpr std::array kFamilyNames = {"structured", "next", "random"};
constexpr std::array kFunctions = {GateFunction::kSoftplus, GateFunction::kBounded, GateFunction::kGiven};
constexpr std::array kFunctionNames = {"softplus", "bounded", "given"};

// One program to fill.
struct Program {
  const Geometry& geometry;
  ProgramKey key;
  CheckpointProgram checkpoint;
  WindowProgram window;
  int32_t* h;
};

EdgeSizes sizes_of(StepEdge edge) {
  switch (edge) {
    case StepEdge::kEmptyWindow:
      return {.codes = 0};
    case StepEdge::kZero:
      return kZeroSizes;
    case StepEdge::kTiny:
      return kTinySizes;
    case StepEdge::kHuge:
      return kHugeSizes;
    case StepEdge::kRankOne:
      return {.codes = 0, .key_factor = 0, .value_factor = 0};
    default:
      return {};
  }
}

int32_t draw_fill(RandomStream& stream, const Geometry& geometry) {
  return static_cast<int32_t>(geometry.window * stream.uniform());
}

// Gates below the fill, 1 above, and the log-decay that they add up to, less a little.
void draw_step_decay(RandomStream& stream, const Program& p, StepEdge edge) {
  const int64_t key_dim = p.geometry.key_dim;
  std::fill_n(p.window.window_gate, p.geometry.window * key_dim, Half{kHalfOne});
  draw_uniform(stream, 0.5, 1, *p.h * key_dim, p.window.window_gate);
  for (int64_t k = 0; k < key_dim; ++k) {
    double sum = -stream.uniform();
    for (int64_t j = 0; j < *p.h; ++j) {
      sum += portable_log(static_cast<double>(to_float(p.window.window_gate[j * key_dim + k])));
    }
    p.window.log_decay[k] = static_cast<float>(edge == StepEdge::kStrongDecay ? sum + kStrongDecay : sum);
  }
}

// The same for GDN: gates of the occupied entries, each of which has decayed the weights before it and the checkpoint.
void draw_scalar_step_decay(RandomStream& stream, const Program& p) {
  double decay = 1;
  for (int64_t j = *p.h - 1; j >= 0; --j) {
    p.window.window_weight[j] *= static_cast<float>(decay);
    decay *= stream.uniform(0.5, 1);
  }
  *p.window.decay = static_cast<float>(decay * portable_exp(-stream.uniform()));
}

// Entries that count, of those that are occupied.
int64_t live_entries(StepEdge edge, int64_t occupied) {
  return edge == StepEdge::kRankOne ? std::min<int64_t>(occupied, 1) : occupied;
}

void draw_structured(const Program& p) {
  const StepEdge edge = step_edge_of(p.geometry, p.key.item, p.key.head);
  const EdgeSizes sizes = sizes_of(edge);
  draw_sized_checkpoint(p.geometry, p.key, sizes, p.checkpoint);
  RandomStream stream = program_stream(p.key, Part::kStepWindow);
  *p.h = draw_fill(stream, p.geometry);
  if (edge == StepEdge::kEmptyWindow) *p.h = 0;
  if (edge == StepEdge::kLastEntryFree) *p.h = p.geometry.window - 1;
  if (edge == StepEdge::kRankOne) *p.h = std::max(*p.h, 1);
  draw_normal(stream, 0.1 * sizes.window_key, p.geometry.window * p.geometry.key_dim, p.window.window_key);
  draw_normal(stream, 0.3 * sizes.window_update, p.geometry.window * p.geometry.value_dim, p.window.window_update);
  const int64_t live = live_entries(edge, *p.h);
  for (int64_t j = 0; j < p.geometry.window; ++j) p.window.window_weight[j] = j < live ? 1.0f : 0.0f;
  p.geometry.gate == Gate::kKda ? draw_step_decay(stream, p, edge) : draw_scalar_step_decay(stream, p);
}

void draw_random(const Program& p) {
  draw_random_checkpoint(p.geometry, p.key, p.checkpoint);
  draw_random_window(p.geometry, p.key, p.window);
  RandomStream stream = program_stream(p.key, Part::kStepWindow);
  *p.h = draw_fill(stream, p.geometry);
}

// A program's token. Query and key are those of the first head of the group: the others pass theirs over.
void draw_token(RandomStream& stream, const ProgramKey& key, TokenTensors& out) {
  const Geometry& geometry = out.geometry;
  const int64_t n = key.item * geometry.num_heads + key.head;
  std::vector<Bfloat16> side(static_cast<size_t>(geometry.key_dim));
  for (auto* const tensor : {&out.qx, &out.kx}) {
    draw_normal(stream, 1, geometry.key_dim, side.data());
    if (key.head % geometry.group_size() != 0) continue;
    std::copy(side.begin(), side.end(), tensor->begin() + n / geometry.group_size() * geometry.key_dim);
  }
  draw_normal(stream, 1, geometry.value_dim, out.vx.data() + n * geometry.value_dim);
  const int64_t channels = geometry.gate_channels();
  draw_normal(stream, 1, channels, out.a.data() + n * channels);
  draw_normal(stream, 2, 1, out.b.data() + n);
  for (int64_t c = 0; c < channels; ++c) {
    out.log_gate[n * channels + c] = static_cast<float>(-0.3 * portable_exp(stream.normal()));
  }
}

// Constants of the model: the same for the whole batch.
void draw_constants(const Geometry& geometry, uint64_t seed, TokenTensors& out) {
  for (int64_t head = 0; head < geometry.num_heads; ++head) {
    RandomStream stream = program_stream({seed, 0, head}, Part::kStepConstants);
    out.A_log[head] = static_cast<float>(portable_log(stream.uniform(0.5, 2)));
    for (int64_t c = 0; c < geometry.gate_channels(); ++c) {
      out.dt_bias[head * geometry.gate_channels() + c] = static_cast<float>(0.5 * stream.normal() - 1);
    }
  }
}

// The float reference's step, appended. A window whose last entry was free stays as it was.
void append_reference(const Program& p, const GateRule& gate, const TokenProgram& token) {
  if (*p.h == p.geometry.window - 1) return;
  const bool kda = p.geometry.gate == Gate::kKda;
  const int64_t key_offset = *p.h * p.geometry.key_dim;
  std::vector<Bfloat16> output(static_cast<size_t>(p.geometry.value_dim));
  const ref::StepValues<float> values = ref::step_values<float>(p.geometry, gate, p.checkpoint, p.window, *p.h, token);
  ref::write_step(
      values, {output.data(), p.window.window_key + key_offset, p.window.window_update + *p.h * p.geometry.value_dim,
               kda ? p.window.window_gate + key_offset : nullptr, p.window.log_decay, nullptr});
  append_weight(p.geometry.gate, p.window, *p.h, values.outcome().token_decay);
  ++*p.h;
}

void clear_value(const ProgramKey& key, StepInputs& inputs) {
  const int64_t n = key.item * inputs.geometry.num_heads + key.head;
  std::fill_n(inputs.token.vx.begin() + n * inputs.geometry.value_dim, inputs.geometry.value_dim, Bfloat16{0});
}

// The heads that share a key head, which is drawn for them together.
void draw_group(const StepRequest& request, std::span<const Program> group, StepInputs& inputs) {
  for (const Program& p : group) {
    request.family == StepFamily::kRandom ? draw_random(p) : draw_structured(p);
    RandomStream stream = program_stream(p.key, Part::kStepToken);
    draw_token(stream, p.key, inputs.token);
    const bool zero_value = request.family == StepFamily::kStructured && p.key.item % 2 == 1 &&
                            step_edge_of(p.geometry, p.key.item, p.key.head) == StepEdge::kZero;
    if (zero_value) clear_value(p.key, inputs);
  }
  if (request.family != StepFamily::kNext) return;
  for (const Program& p : group) append_reference(p, request.gate, inputs.token.view().at(p.key.item, p.key.head));
  for (const Program& p : group) {
    RandomStream next = program_stream(p.key, Part::kNextToken);
    draw_token(next, p.key, inputs.token);
  }
}

// The last edge is about decays of single channels, or, where there are none, about a window of rank 1.
StepEdge edge_of_number(Gate gate, int64_t number) {
  const auto edge = static_cast<StepEdge>(number);
  return gate == Gate::kGdn && edge == StepEdge::kStrongDecay ? StepEdge::kRankOne : edge;
}

Status check_request(const StepRequest& request) {
  LQ_RETURN_IF_ERROR(check_geometry(request.geometry));
  if (request.batch < 1) return invalid_argument("batch: expected at least 1, got " + std::to_string(request.batch));
  return {};
}

}  // namespace

std::span<const StepFamily> all_step_families() { return kFamilies; }
const char* step_family_name(StepFamily family) { return kFamilyNames[static_cast<size_t>(family)]; }
Result<StepFamily> parse_step_family(std::string_view name) {
  return parse_name("family", name, kFamilies, kFamilyNames);
}

std::span<const GateFunction> all_gate_functions() { return kFunctions; }
const char* gate_function_name(GateFunction function) { return kFunctionNames[static_cast<size_t>(function)]; }
Result<GateFunction> parse_gate_function(std::string_view name) {
  return parse_name("gate function", name, kFunctions, kFunctionNames);
}

StepEdge step_edge_of(const Geometry& geometry, int64_t item, int64_t head) {
  if (geometry.num_heads >= kStepEdgeCount) {
    return head < kStepEdgeCount ? edge_of_number(geometry.gate, head) : StepEdge::kNone;
  }
  return edge_of_number(geometry.gate, (item * geometry.num_heads + head) % kStepEdgeCount);
}

Result<StepInputs> make_step_inputs(const StepRequest& request) {
  LQ_RETURN_IF_ERROR(check_request(request));
  const Geometry& geometry = request.geometry;
  StepInputs inputs{.geometry = geometry,
                    .batch = request.batch,
                    .checkpoint = CheckpointTensors(geometry, request.batch),
                    .window = WindowTensors(geometry, request.batch),
                    .h = std::vector<int32_t>(static_cast<size_t>(request.batch * geometry.num_heads)),
                    .token = TokenTensors(geometry, request.batch),
                    .gate = request.gate};
  draw_constants(geometry, request.seed, inputs.token);
  const CheckpointView checkpoint = inputs.checkpoint.view();
  const WindowView window = inputs.window.view();
  const int64_t group_size = geometry.group_size();
  parallel_for(request.batch * geometry.num_key_heads, request.threads, [&](int64_t n) {
    std::vector<Program> group;
    for (int64_t program = n * group_size; program < (n + 1) * group_size; ++program) {
      const ProgramKey key{request.seed, program / geometry.num_heads, program % geometry.num_heads};
      group.push_back(
          {geometry, key, checkpoint.at(key.item, key.head), window.at(key.item, key.head), &inputs.h[program]});
    }
    draw_group(request, group, inputs);
  });
  return inputs;
}

}  // namespace leapquant::judge
