# SPDX-License-Identifier: Apache-2.0
#
# Installs the build tree `build` afresh below `prefix`.
file(REMOVE_RECURSE ${prefix})
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${prefix} --config ${config}
  COMMAND_ERROR_IS_FATAL ANY
)
