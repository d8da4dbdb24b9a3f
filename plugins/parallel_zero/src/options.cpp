#include "options.hpp"

namespace espalier::parallel_zero {

Options read_options(const ConfigView& config) {
  Options options;
  options.stage = static_cast<int>(config.integer("stage"));
  if (options.stage > 1) {
    config.fail("stage",
                "stage " + std::to_string(options.stage) +
                    " is not available in this version: 0 (nothing sharded) and 1 (optimizer state sharded) are");
  }
  const std::string dtype = config.string("reduce_dtype");
  if (dtype == "f32") options.reduce_dtype = DType::f32;
  if (dtype == "bf16") options.reduce_dtype = DType::bf16;
  options.bucket_bytes = config.integer("bucket_bytes");
  return options;
}

}  // namespace espalier::parallel_zero
