#include "options.hpp"

#include <string>

namespace espalier::parallel_pipeline {

Options read_options(const ConfigView& config, int stages) {
  Options options;
  const std::string schedule = config.string("schedule");
  if (schedule == "gpipe") options.schedule = Schedule::gpipe;
  if (schedule == "interleaved") options.schedule = Schedule::interleaved;
  if (schedule == "zero_bubble") options.schedule = Schedule::zero_bubble;

  const bool interleaved = options.schedule == Schedule::interleaved;
  options.chunks = interleaved ? 2 : 1;
  if (config.has("chunks")) options.chunks = static_cast<int>(config.integer("chunks"));
  if (interleaved && options.chunks < 2) {
    config.fail("chunks", "interleaved needs 2 or more; with 1 it is schedule = \"1f1b\"");
  }
  if (!interleaved && options.chunks > 1) {
    config.fail("chunks",
                std::to_string(options.chunks) + " chunks need schedule = \"interleaved\", found \"" + schedule + "\"");
  }
  if (stages == 1) options.chunks = 1;

  options.scatter_gather = config.boolean("scatter_gather");
  const std::string cut = config.string("cut");
  if (cut == "parameters") options.cut = Cut::parameters;
  if (cut == "slots") options.cut = Cut::slots;
  if (cut == "cost") options.cut = Cut::cost;
  if (config.has("parts")) {
    // The recipe that is saved with a checkpoint has every default in it: only another cut is a wish.
    if (options.cut != Cut::layers) {
      config.fail("parts", "cut = \"" + cut + "\" is given too; the parts come from one of them");
    }
    options.cut = Cut::list;
    options.parts = config.integers("parts");
    const auto needed = static_cast<std::size_t>(stages) * static_cast<std::size_t>(options.chunks);
    if (options.parts.size() != needed) {
      config.fail("parts", "expected " + std::to_string(needed) + " (" + std::to_string(stages) + " stages of " +
                               std::to_string(options.chunks) + " chunks), found " +
                               std::to_string(options.parts.size()));
    }
  }
  return options;
}

}  // namespace espalier::parallel_pipeline
