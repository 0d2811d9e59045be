# SPDX-License-Identifier: Apache-2.0
#
# LQ_SANITIZE: instruments every target of the project. Without the sanitizer's runtime the configuration fails: a suite
# that runs uninstrumented would pass and prove nothing.
include(CheckCXXSourceCompiles)

function(lq_require_sanitizer flags)
  set(CMAKE_REQUIRED_FLAGS "${flags}")
  set(CMAKE_REQUIRED_LINK_OPTIONS "${flags}")
  # The result is cached under a name of the flags, so that a changed LQ_SANITIZE is checked again.
  string(MAKE_C_IDENTIFIER "LQ_HAVE${flags}" have)
  check_cxx_source_compiles("int main() { return 0; }" ${have})
  if(NOT ${have})
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} cannot link with ${flags}: is the sanitizer's runtime installed?")
  endif()
endfunction()

if(LQ_SANITIZE)
  lq_require_sanitizer("-fsanitize=${LQ_SANITIZE}")
  # Lightly optimised: with instrumentation, more takes longer to compile than the tests take to run. Not so the formulas
  # that most tests spend their time in (LQ_HOT_UNDER_SANITIZERS, a property of targets).
  target_compile_options(
    lq_options
    INTERFACE
      -fsanitize=${LQ_SANITIZE}
      -fno-sanitize-recover=all
      -fno-omit-frame-pointer
      -O$<IF:$<BOOL:$<TARGET_PROPERTY:LQ_HOT_UNDER_SANITIZERS>>,2,1>
      -g1
  )
  # A caller in C may put any value into an enum of the interface; the library reads it in order to refuse it, and the
  # compilers keep every value unless told otherwise (-fstrict-enums).
  if(LQ_SANITIZE MATCHES "undefined")
    target_compile_options(lq_options INTERFACE -fno-sanitize=enum)
  endif()
  target_link_options(lq_options INTERFACE -fsanitize=${LQ_SANITIZE})
endif()

if(LQ_BUILD_FUZZERS)
  lq_require_sanitizer("-fsanitize=fuzzer-no-link")
  target_compile_options(lq_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Compiles the files of a target a few at a time where they are instrumented: most of each is what the headers of
# dependencies expand to, and every file would compile it again. Files compile alone in all other builds.
function(lq_compile_together)
  if(LQ_SANITIZE)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()
