# SPDX-License-Identifier: Apache-2.0
#
# The CUDA backend is part of the build wherever a CUDA compiler is found. LQ_WITH_CUDA says whether it is. Builds with
# the host's sanitizers go without it: the device has sanitizers of its own.
option(LQ_CUDA "Build the CUDA backend when a CUDA compiler is found" ON)
set(
  LQ_CUDA_ARCHITECTURES
  "80-real;90a-real;100f-real;120f"
  CACHE STRING
  "Architectures of the CUDA backend: the last also as PTX, which later devices compile when they load it"
)

set(LQ_WITH_CUDA OFF)
if(LQ_CUDA AND NOT LQ_SANITIZE AND NOT LQ_BUILD_FUZZERS)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Each target names its own (see below); this only keeps CMake from choosing.
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LQ_WITH_CUDA ON)
    # CMake 3.25 knows no C++20 for nvcc; CUDA sources include nothing that needs it.
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(LQ_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${LQ_CCACHE})
    endif()
  endif()
endif()

# As a property of the target: CMake 3.25 takes no family such as 100f in CMAKE_CUDA_ARCHITECTURES.
function(lq_set_cuda_architectures target)
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${LQ_CUDA_ARCHITECTURES}")
endfunction()
