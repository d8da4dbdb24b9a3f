#pragma once

#include <string>

namespace espalier::kernels_fused::cuda {

/// One of the plugin's kernels, for the runtime to look up: what it says of this one holds for all.
const void* any_kernel();

/// Compute capabilities that kernels were compiled for, "8.0, 9.0".
std::string compiled_for();

}  // namespace espalier::kernels_fused::cuda
