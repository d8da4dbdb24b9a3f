#pragma once

#include <string>
#include <vector>

#include "ranks/pipeline/pipeline_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {

/// Steps through the CUDA backend on fake GPUs.
inline RunOptions on_fake_gpus(RunOptions options) {
  const std::vector<std::string> more = {
      "plugins.search_path=[\"" EMULATED_DIR "\", \"" ESPALIER_PLUGIN_DIR "\"]",
      "backend.plugin=kernels_fused",
      "backend.device=cuda",
      "model.layers=2",
  };
  options.more.insert(options.more.begin(), more.begin(), more.end());
  return options;
}

}  // namespace espalier::testing_support
