# SPDX-License-Identifier: Apache-2.0
#
# The CUDA backend is part of the build wherever a CUDA compiler is found. LQ_WITH_CUDA says whether it is. Builds with
# the host's sanitizers go without it: the device has sanitizers of its own.
option(LQ_CUDA "Build the CUDA backend when a CUDA compiler is found" ON)

# An image for every kind of device from sm_80 on, one for a family where there is one, and PTX for the rest. Which device runs which:
# docs/design.md. PTX of a family (compute_120f) or of one architecture (compute_90a) would be of no use to later ones.
# A toolkit that knows no families names the members' common architecture instead; one that knows no sm_100, nothing.
function(lq_default_cuda_architectures version result)
  if(version VERSION_GREATER_EQUAL 12.9)
    set(${result} "80-real;86-real;89-real;90a-real;100f-real;120f-real;100-virtual" PARENT_SCOPE)
  elseif(version VERSION_GREATER_EQUAL 12.8)
    set(${result} "80-real;86-real;89-real;90a-real;100-real;103-real;120-real;100-virtual" PARENT_SCOPE)
  else()
    set(${result} "80-real;86-real;89-real;90a-real;90-virtual" PARENT_SCOPE)
  endif()
endfunction()

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
    lq_default_cuda_architectures(${CMAKE_CUDA_COMPILER_VERSION} lq_architectures)
    set(
      LQ_CUDA_ARCHITECTURES
      "${lq_architectures}"
      CACHE STRING
      "Architectures of the CUDA backend, as CMake's CUDA_ARCHITECTURES has them: 90a-real, 100f-real, 100-virtual, ..."
    )
  endif()
endif()

# What every target with kernels needs.
function(lq_set_cuda_options target)
  # As a property of the target: CMake 3.25 takes no family such as 100f in CMAKE_CUDA_ARCHITECTURES.
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${LQ_CUDA_ARCHITECTURES}")
  # The resource guard: a kernel that spills registers, or keeps an array in local memory, still works, and is slow. The
  # error names the kernel; tools/kernel_resources.py shows which architecture, and all other figures.
  set(ptxas_options --warn-on-spills,--warn-on-local-memory-usage)
  if(LQ_WARNINGS_AS_ERRORS)
    string(APPEND ptxas_options ,--warning-as-error)
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=${ptxas_options}>)
endfunction()
