# SPDX-License-Identifier: Apache-2.0
#
# LQ_MANYLINUX: the library, the tvm-ffi module and the program run wherever glibc 2.28 or a newer one is
# (manylinux_2_28), whatever they were built with. The C++ runtime is linked in; of glibc's functions, old versions are
# taken (manylinux/glibc_2_28.c). tests/packaging/check_floor.py finds what is missing there.
option(LQ_MANYLINUX "Link for manylinux_2_28 (x86-64 Linux, GCC)" ${LQ_BUILD_PYTHON})

set(LQ_FOR_MANYLINUX OFF)
if(LQ_MANYLINUX AND NOT LQ_SANITIZE)
  if(
    CMAKE_SYSTEM_NAME STREQUAL "Linux"
    AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64"
    AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
  )
    set(LQ_FOR_MANYLINUX ON)
  else()
    message(STATUS "LQ_MANYLINUX has no effect here: it is for GCC on x86-64 Linux")
  endif()
endif()

# Makes a library or program of ours one for manylinux_2_28, where that was asked for.
function(lq_link_for_manylinux target)
  if(NOT LQ_FOR_MANYLINUX)
    return()
  endif()
  set(sources ${PROJECT_SOURCE_DIR}/cmake/manylinux)
  target_sources(${target} PRIVATE ${sources}/glibc_2_28.c)
  target_link_options(
    ${target}
    PRIVATE
      -static-libstdc++
      LINKER:--exclude-libs,ALL
      LINKER:--gc-sections
      # Where the functions are that moved into libc.so.6 later.
      LINKER:--push-state,--no-as-needed
      -l:libpthread.so.0
      -l:libdl.so.2
      -l:librt.so.1
      -l:libm.so.6
      LINKER:--pop-state
  )
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_sources(${target} PRIVATE ${sources}/start.c)
    target_link_options(${target} PRIVATE LINKER:--wrap=main)
  endif()
endfunction()
