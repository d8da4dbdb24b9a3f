#include "options.hpp"

namespace espalier::parallel_tensor {

Options read_options(const ConfigView& config) {
  Options options;
  options.sequence_parallel = config.boolean("sequence_parallel");
  options.overlap = config.boolean("overlap");
  if (config.string("reduction") == "library") options.sum = Reduce::sum_library;
  return options;
}

}  // namespace espalier::parallel_tensor
