// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes the loaders of checkpoint files, shapes and values included: the input is a whole file, kept in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "io/checkpoint_stats.h"

using namespace leapquant;

namespace {

// An anonymous file that the loaders can open by name.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || write(descriptor_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory(data, size);
  const Result<io::ProgramFile> inputs = io::load_flush_inputs(memory.path());
  if (inputs.ok() && !io::check_values(inputs.value()).ok()) std::abort();
  const Result<io::SafetensorsFile> file = io::SafetensorsFile::open(memory.path());
  if (!file.ok()) return 0;
  const Result<io::ProgramFile> checkpoint = io::load_checkpoint(file.value());
  if (!checkpoint.ok()) return 0;
  io::code_stats(checkpoint.value());
  io::state_stats(checkpoint.value());
  return 0;
}
