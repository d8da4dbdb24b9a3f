#pragma once
#include <cstddef>
#include <cstdint>
#include <espalier/config.hpp>
#include <espalier/dataset.hpp>
#include <espalier/facts.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sample_index.hpp"

namespace espalier::data_indexed {

/// One entry of a set, as the recipe has it.
struct PartOptions {
  std::string path;     // prefix, RunFacts::recipe_dir in front where it was relative
  double weight = 1.0;  // as given; 1 for a single entry
  ShareRange range;     // of its sequences; the whole where a split string cuts it
};

/// One set: the training data, or a validation or test set of its own.
struct SetOptions {
  std::string name;
  Split split;
  std::vector<PartOptions> parts;
  bool weighted = true;  // false (megatron_core only): no entry has a weight, the lengths of the parts decide
};

struct DataOptions {
  std::vector<SetOptions> sets;      // the first is "train"; without a split string also the explicit ones
  std::optional<std::string> split;  // cuts every entry of "train" in train, valid and test
  std::string cache_folder;          // "": beside the data
  std::uint32_t seed;
  SampleRules rules;
  std::int32_t pad_id = -1;  // core's; -1: none
  std::vector<std::int64_t>
      plan_ends;  // training samples at which one plan ends and the next starts; the last is the end
};

/// The options of the [data] table, for the descriptor.
inline constexpr std::size_t kDataOptionCount = 15;
extern const OptionSpec kDataOptions[kDataOptionCount];

/// Reads the table. @throws ConfigError with file, line and key.
DataOptions parse_options(const ConfigView& config, const RunFacts& facts);

}  // namespace espalier::data_indexed
