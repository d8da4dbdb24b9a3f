#include "options.hpp"

#include <algorithm>

namespace espalier::parallel_zero {

Options read_options(const ConfigView& config) {
  Options options;
  options.stage = static_cast<int>(config.integer("stage"));
  options.reduce_once = config.string("reduce") == "step";
  if (options.reduce_once && options.stage == 3) {
    config.fail("reduce",
                "\"step\" keeps whole gradients and weights, stage 3 shards both: use stage 2, or reduce = "
                "\"micro_batch\"");
  }
  if (options.reduce_once && options.stage < 2) {
    config.fail("reduce", "\"step\" is a choice of stage 2: stage " + std::to_string(options.stage) +
                              " reduces once a step in any case; leave it out");
  }
  options.offload = config.string("offload_optimizer") == "cpu";
  const std::string dtype = config.string("reduce_dtype");
  if (dtype == "f32") options.reduce_dtype = DType::f32;
  if (dtype == "bf16") options.reduce_dtype = DType::bf16;
  options.bucket_bytes = config.integer("bucket_bytes");
  options.overlap = config.boolean("overlap");
  options.prefetch = static_cast<int>(config.integer("prefetch"));
  options.keep_gathered = static_cast<int>(config.integer("keep_gathered"));
  // The recipe that is saved with a checkpoint has every default in it: only what differs is a wish.
  for (const char* key : {"prefetch", "keep_gathered"}) {
    if (options.stage < 3 && config.integer(key) != 1) {
      config.fail(key, "is of stage 3, which gathers layers: stage " + std::to_string(options.stage) +
                           " has all weights on every rank; leave it out");
    }
  }
  return options;
}

}  // namespace espalier::parallel_zero
