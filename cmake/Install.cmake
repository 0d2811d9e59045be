# SPDX-License-Identifier: Apache-2.0
#
# The installed package: libraries, headers, CMake and pkg-config files, the program and its data.
include(CMakePackageConfigHelpers)

set(lq_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/leapquant)

# Two exports, so that users of the shared library need none of what the static one still has to be linked with.
foreach(target IN ITEMS leapquant leapquant_static)
  install(TARGETS ${target} EXPORT ${target})
  install(EXPORT ${target} NAMESPACE leapquant:: FILE ${target}_targets.cmake DESTINATION ${lq_cmake_dir})
endforeach()
install(DIRECTORY include/leapquant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(
  cmake/leapquant-config.cmake.in
  leapquant-config.cmake
  INSTALL_DESTINATION ${lq_cmake_dir}
  NO_SET_AND_CHECK_MACRO
)
write_basic_package_version_file(leapquant-config-version.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/leapquant-config.cmake ${PROJECT_BINARY_DIR}/leapquant-config-version.cmake
  DESTINATION ${lq_cmake_dir}
)

# pkg-config files find their prefix from where they lie, so that an installed tree can be moved.
file(RELATIVE_PATH lq_pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(lq_pc_cuda "")
if(LQ_WITH_CUDA)
  set(lq_pc_cuda " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
foreach(pc IN ITEMS leapquant.pc leapquant-static.pc)
  configure_file(cmake/${pc}.in ${pc} @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(LQ_BUILD_CLI)
  install(TARGETS leapquant_cli)
  install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/leapquant)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
