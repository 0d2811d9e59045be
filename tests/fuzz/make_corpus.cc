// SPDX-License-Identifier: Apache-2.0
//
// Writes the seeds of the binary corpora into a folder: small checkpoint files, valid but for what fuzzing makes of
// them.
#include <cstdio>
#include <filesystem>

#include "checkpoint_fixture.h"

using namespace leapquant;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_corpus FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const Gate gate : {Gate::kKda, Gate::kGdn}) {
    const Geometry geometry = {
        .gate = gate, .num_heads = 1, .num_key_heads = 1, .value_dim = 2, .key_dim = 3, .window = 2, .rank = 1};
    const std::string path = (folder / gate_name(gate)).string();
    const Status saved = io::save_inputs(path, io::make_inputs(geometry, 1), io::format_metadata(geometry));
    if (saved.ok()) continue;
    std::fprintf(stderr, "%s\n", saved.message().c_str());
    return 1;
  }
  return 0;
}
