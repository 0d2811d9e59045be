// SPDX-License-Identifier: Apache-2.0
#include "judge/step_families.h"

#include <algorithm>
#include <array>
#include <string>

#include "judge/parallel.h"
#include "judge/structured.h"
#include "ref/step.h"

namespace leapquant::judge {
namespace {

constexpr std::array kFamilies = {StepFamily::kStructured, StepFamily::kNext, StepFamily::kRandom};
constexpr std::array kFamilyNames = {"structured", "next", "random"};
constexpr std::array kFunctions = {GateFunction::kSoftplus, GateFunction::kBounded, GateFunction::kGiven};
constexpr std::array kFunctionNames = {"softplus", "bounded", "given"};

// The value whose name this is.
template <class Value, size_t kCount>
Result<Value> parse(const char* what, std::string_view name, const std::array<Value, kCount>& values,
                    const std::array<const char*, kCount>& names) {
  std::string known;
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return values[i];
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  return invalid_argument(std::string(what) + ": no '" + std::string(name) + "'; there are: " + known);
}

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

void draw_structured(const Program& p) {
  const StepEdge edge = step_edge_of(p.geometry, p.key.item, p.key.head);
  const EdgeSizes sizes = sizes_of(edge);
  draw_sized_checkpoint(p.geometry, p.key, sizes, p.checkpoint);
  RandomStream stream = program_stream(p.key, Part::kStepWindow);
  *p.h = draw_fill(stream, p.geometry);
  if (edge == StepEdge::kEmptyWindow) *p.h = 0;
  if (edge == StepEdge::kLastEntryFree) *p.h = p.geometry.window - 1;
  draw_normal(stream, 0.1 * sizes.window_key, p.geometry.window * p.geometry.key_dim, p.window.window_key);
  draw_normal(stream, 0.3 * sizes.window_update, p.geometry.window * p.geometry.value_dim, p.window.window_update);
  for (int64_t j = 0; j < p.geometry.window; ++j) p.window.window_weight[j] = j < *p.h ? 1.0f : 0.0f;
  draw_step_decay(stream, p, edge);
}

void draw_random(const Program& p) {
  draw_random_checkpoint(p.geometry, p.key, p.checkpoint);
  draw_random_window(p.geometry, p.key, p.window);
  RandomStream stream = program_stream(p.key, Part::kStepWindow);
  *p.h = draw_fill(stream, p.geometry);
}

void draw_token(RandomStream& stream, const Geometry& geometry, int64_t program, TokenTensors& out) {
  const int64_t key_row = program * geometry.key_dim;
  draw_normal(stream, 1, geometry.key_dim, out.qx.data() + key_row);
  draw_normal(stream, 1, geometry.key_dim, out.kx.data() + key_row);
  draw_normal(stream, 1, geometry.value_dim, out.vx.data() + program * geometry.value_dim);
  draw_normal(stream, 1, geometry.key_dim, out.a.data() + key_row);
  draw_normal(stream, 2, 1, out.b.data() + program);
  for (int64_t k = 0; k < geometry.key_dim; ++k) {
    out.log_gate[key_row + k] = static_cast<float>(-0.3 * portable_exp(stream.normal()));
  }
}

// Constants of the model: the same for the whole batch.
void draw_constants(const Geometry& geometry, uint64_t seed, TokenTensors& out) {
  for (int64_t head = 0; head < geometry.num_heads; ++head) {
    RandomStream stream = program_stream({seed, 0, head}, Part::kStepConstants);
    out.A_log[head] = static_cast<float>(portable_log(stream.uniform(0.5, 2)));
    for (int64_t k = 0; k < geometry.key_dim; ++k) {
      out.dt_bias[head * geometry.key_dim + k] = static_cast<float>(0.5 * stream.normal() - 1);
    }
  }
}

// The float reference's step, appended. A window whose last entry was free stays as it was.
void append_reference(const Program& p, const GateRule& gate, const TokenProgram& token) {
  if (*p.h == p.geometry.window - 1) return;
  const int64_t key_offset = *p.h * p.geometry.key_dim;
  std::vector<Bfloat16> output(static_cast<size_t>(p.geometry.value_dim));
  const ref::StepValues<float> values = ref::step_values<float>(p.geometry, gate, p.checkpoint, p.window, *p.h, token);
  ref::write_step(
      values, {output.data(), p.window.window_key + key_offset, p.window.window_update + *p.h * p.geometry.value_dim,
               p.window.window_gate + key_offset, p.window.log_decay});
  p.window.window_weight[*p.h] = 1.0f;
  ++*p.h;
}

void draw_program(const StepRequest& request, const Program& p, StepInputs& inputs) {
  const int64_t n = p.key.item * p.geometry.num_heads + p.key.head;
  request.family == StepFamily::kRandom ? draw_random(p) : draw_structured(p);
  RandomStream stream = program_stream(p.key, Part::kStepToken);
  draw_token(stream, p.geometry, n, inputs.token);
  if (request.family == StepFamily::kNext) {
    append_reference(p, request.gate, inputs.token.view().at(p.key.item, p.key.head));
    RandomStream next = program_stream(p.key, Part::kNextToken);
    draw_token(next, p.geometry, n, inputs.token);
  }
  const bool zero_value = request.family == StepFamily::kStructured && p.key.item % 2 == 1 &&
                          step_edge_of(p.geometry, p.key.item, p.key.head) == StepEdge::kZero;
  if (zero_value) std::fill_n(inputs.token.vx.begin() + n * p.geometry.value_dim, p.geometry.value_dim, Bfloat16{0});
}

Status check_request(const StepRequest& request) {
  LQ_RETURN_IF_ERROR(check_geometry(request.geometry));
  if (request.geometry.gate != Gate::kKda) {
    return unsupported(std::string("input families: gate kda only, got ") + gate_name(request.geometry.gate));
  }
  if (request.batch < 1) return invalid_argument("batch: expected at least 1, got " + std::to_string(request.batch));
  return {};
}

}  // namespace

std::span<const StepFamily> all_step_families() { return kFamilies; }
const char* step_family_name(StepFamily family) { return kFamilyNames[static_cast<size_t>(family)]; }
Result<StepFamily> parse_step_family(std::string_view name) { return parse("family", name, kFamilies, kFamilyNames); }

std::span<const GateFunction> all_gate_functions() { return kFunctions; }
const char* gate_function_name(GateFunction function) { return kFunctionNames[static_cast<size_t>(function)]; }
Result<GateFunction> parse_gate_function(std::string_view name) {
  return parse("gate function", name, kFunctions, kFunctionNames);
}

StepEdge step_edge_of(const Geometry& geometry, int64_t item, int64_t head) {
  if (geometry.num_heads >= kStepEdgeCount) {
    return head < kStepEdgeCount ? static_cast<StepEdge>(head) : StepEdge::kNone;
  }
  return static_cast<StepEdge>((item * geometry.num_heads + head) % kStepEdgeCount);
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
  parallel_for(inputs.programs(), request.threads, [&](int64_t n) {
    const ProgramKey key{request.seed, n / geometry.num_heads, n % geometry.num_heads};
    draw_program(request,
                 {geometry, key, checkpoint.at(key.item, key.head), window.at(key.item, key.head), &inputs.h[n]},
                 inputs);
  });
  return inputs;
}

}  // namespace leapquant::judge
