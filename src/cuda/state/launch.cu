// SPDX-License-Identifier: Apache-2.0
#include "cuda/state/export.cuh"
#include "cuda/state/import.cuh"
#include "cuda/state/launch.h"

namespace leapquant::cuda::state {
namespace {

template <int kColumns>
cudaError_t prepare_import() {
  constexpr int kBytes = sizeof(ImportStorage<kColumns>);
  static_assert(kBytes <= 99 * 1024, "every architecture from sm_80 on has this much");
  const cudaError_t error =
      cudaFuncSetAttribute(import_kernel<kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaFuncAttributes attributes;
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, import_kernel<kColumns>);
}

template <int kColumns>
cudaError_t launch_columns(const ImportArguments& arguments, cudaStream_t stream) {
  import_kernel<kColumns>
      <<<arguments.state.programs, kImportThreads, sizeof(ImportStorage<kColumns>), stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prepare_states() {
  cudaFuncAttributes attributes;
  for (const cudaError_t error :
       {prepare_import<4>(), prepare_import<8>(), cudaFuncGetAttributes(&attributes, export_kernel<false>),
        cudaFuncGetAttributes(&attributes, export_kernel<true>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_import(const ImportArguments& arguments, cudaStream_t stream) {
  return arguments.state.rank <= 4 ? launch_columns<4>(arguments, stream) : launch_columns<8>(arguments, stream);
}

cudaError_t launch_export(const StateArguments& arguments, cudaStream_t stream) {
  if (arguments.states.by_key) {
    export_kernel<true><<<arguments.programs, kExportThreads, 0, stream>>>(arguments);
  } else {
    export_kernel<false><<<arguments.programs, kExportThreads, 0, stream>>>(arguments);
  }
  return cudaGetLastError();
}

}  // namespace leapquant::cuda::state
