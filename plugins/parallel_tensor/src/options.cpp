#include "options.hpp"

namespace espalier::parallel_tensor {

Options read_options(const ConfigView& config) {
  Options options;
  options.sequence_parallel = config.boolean("sequence_parallel");
  options.overlap = config.boolean("overlap");
  if (config.string("reduction") == "library") options.sum = Reduce::sum_library;
  options.reduce_f32 = config.string("reduce_dtype") == "f32";
  return options;
}

}  // namespace espalier::parallel_tensor
