// SPDX-License-Identifier: Apache-2.0
//
// Replaces a file as a whole: whatever goes wrong, and whenever the process dies, the name leads to the complete old
// file or to the complete new one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/status.h"

namespace leapquant::io {

// Writes the pieces, one after another, to a temporary file in the same directory, syncs it, renames it over `path` and
// syncs the directory. On an error the temporary file is removed.
//
// A symbolic link stays, and the file that it leads to is replaced. A replaced file passes on its permission bits; a
// new one gets those of the process's umask. A path that exists and is no regular file is refused.
Status write_file_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces);

}  // namespace leapquant::io
