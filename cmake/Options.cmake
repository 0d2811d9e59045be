# SPDX-License-Identifier: Apache-2.0
#
# Compile options that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The installed program finds the installed library wherever the two were moved together.
file(RELATIVE_PATH lq_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${lq_bin_to_lib}")

find_program(LQ_CCACHE ccache)
if(LQ_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LQ_CCACHE})
endif()

add_library(lq_options INTERFACE)
target_include_directories(lq_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# No contraction: a fused multiply-add happens only where the source asks for one, so that results don't depend on the
# compiler's mood.
target_compile_options(lq_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(LQ_WARNINGS_AS_ERRORS)
  target_compile_options(lq_options INTERFACE -Werror)
endif()
include(cmake/Sanitizers.cmake)

# One object library per folder of src/: the include rules are checked by ./dev lint, the link rules by these targets.
function(lq_add_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} OBJECT ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lq_options ${arg_LINK})
endfunction()
