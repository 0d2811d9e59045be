// SPDX-License-Identifier: Apache-2.0
//
// leapquant flush: the functional flush from file to file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "device/memory.h"
#include "failure.h"
#include "io/checkpoint_file.h"
#include "io/definition.h"
#include "judge/verify.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cli {
namespace {

struct FlushOptions {
  std::string input;
  std::string output;
  std::string backend;
  std::string definition;
  int threads = 0;
};

// The tensor of that name, or the zero tensor of a call that does not use it.
lq_tensor tensor_of(io::ProgramFile& file, const char* name) {
  for (io::LoadedTensor& tensor : file.tensors) {
    if (tensor.name != name) continue;
    return lq_tensor_contiguous(tensor.data.data(), static_cast<lq_dtype>(tensor.dtype), kCpuDevice,
                                static_cast<int32_t>(tensor.shape.size()), tensor.shape.data());
  }
  return {};
}

lq_checkpoint checkpoint_of(io::ProgramFile& file) {
  return {tensor_of(file, "codes"), tensor_of(file, "s_k"), tensor_of(file, "s_v"), tensor_of(file, "u"),
          tensor_of(file, "q")};
}

lq_window window_of(io::ProgramFile& file) {
  return {tensor_of(file, "kbuf"), tensor_of(file, "ubuf"), tensor_of(file, "w"),
          tensor_of(file, "gbuf"), tensor_of(file, "pcum"), tensor_of(file, "p")};
}

// Room for a result: the checkpoint tensors of the inputs, zero.
io::ProgramFile make_result(const io::ProgramFile& inputs) {
  io::ProgramFile result{inputs.geometry, inputs.batch, {}};
  for (const io::TensorSpec& spec : io::checkpoint_tensors()) {
    const io::LoadedTensor& source = inputs.at(spec.name);
    result.tensors.push_back({source.name, source.dtype, source.shape, std::vector<std::byte>(source.data.size())});
  }
  return result;
}

std::optional<io::ExpectedGeometry> expected_geometry(const FlushOptions& options) {
  if (options.definition.empty()) return {};
  const io::Definition definition = input_or_fail(io::load_definition(options.definition));
  return io::ExpectedGeometry{input_or_fail(io::definition_geometry(definition)), "the definition"};
}

// The inputs hold more than the result: the window would be lost.
void refuse_overwrite(const FlushOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::equivalent(options.input, options.output, ignored)) return;
  fail_input(invalid_argument("'" + options.output + "' is the input: give -o another name, or the window is lost"));
}

void flush_programs(const Context& context, const lq_geometry& geometry, io::ProgramFile& inputs,
                    io::ProgramFile& result) {
  device::Twins twins(context.info().device);
  const lq_checkpoint target = twins.twin_of(checkpoint_of(result));
  context.flush(geometry, twins.twin_of(checkpoint_of(inputs)), twins.twin_of(window_of(inputs)),
                twins.twin_of(tensor_of(inputs, "q0")), target);
  twins.fetch(target, checkpoint_of(result));
}

void flush(const FlushOptions& options) {
  refuse_overwrite(options);
  io::ProgramFile inputs = input_or_fail(io::load_flush_inputs(options.input, expected_geometry(options)));
  const lq_geometry geometry = judge::public_geometry(inputs.geometry);
  const Context context(options.backend, options.threads);
  context.require(geometry);
  io::ProgramFile result = make_result(inputs);
  flush_programs(context, geometry, inputs, result);
  const Status values = io::check_values(result);
  if (!values.ok()) {
    fail_input(invalid_argument("'" + options.input + "': a state leaves the range of the format; in the result, " +
                                values.message()));
  }
  require_output(io::save_checkpoint(options.output, result));
  const lq_context_info info = context.info();
  fmt::print("flushed {} programs ({}, batch {}) on {} ({}, {} {}) into '{}'\n",
             inputs.batch * inputs.geometry.num_heads, to_string(inputs.geometry), inputs.batch, info.backend,
             info.target, info.threads, info.threads == 1 ? "thread" : "threads", options.output);
}

constexpr const char* kFlushFooter = R"(
IN holds one tensor per name: codes int8 [B,H,V,K], s_k f32 [B,H,K], s_v f32 [B,H,V], u f16 [B,H,R,K], q f16 [B,H,R,V],
kbuf bf16 [B,H,L,K], ubuf bf16 [B,H,L,V], gbuf f16 [B,H,L,K], w f32 [B,H,L], pcum f32 [B,H,K], q0 f32 [V,R].
OUT gets codes, s_k, s_v, u and q of the new checkpoints. It is replaced as a whole, or left alone on any error.

Examples:
  leapquant flush inputs.safetensors -o checkpoint.safetensors
  leapquant flush inputs.safetensors -o checkpoint.safetensors --backend ref
  leapquant flush inputs.safetensors -o checkpoint.safetensors --definition definition.json)";

}  // namespace

void register_flush(CLI::App& app) {
  auto options = std::make_shared<FlushOptions>();
  CLI::App* const command = app.add_subcommand("flush", "Flush checkpoints and windows of a file into new checkpoints");
  command->footer(kFlushFooter);
  command->add_option("IN", options->input, "safetensors file of the inputs")->required();
  command->add_option("-o,--output", options->output, "safetensors file of the new checkpoints")->required();
  command->add_option("--backend", options->backend, "Backend (see leapquant info); default: the first");
  command->add_option("--threads", options->threads, "Threads; 0: as many as the process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--definition", options->definition, "Refuse inputs of another geometry than this definition's");
  command->callback([options] { flush(*options); });
}

}  // namespace leapquant::cli
