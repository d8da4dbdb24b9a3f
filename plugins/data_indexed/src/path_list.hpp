#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "splits.hpp"

namespace espalier::data_indexed {

/// One line "NAME: WEIGHT START:END PATH, WEIGHT START:END PATH, …" of a list of paths.
struct PathList {
  struct Entry {
    double weight;
    ShareRange range;
    std::string path;
  };
  std::string name;
  std::vector<Entry> entries;
};

/// Reads what Megatron-DeepSpeed takes as --train-weighted-split-paths-path and its like: lists one a line, or all on
/// one line with each in double quotes.
/// @param file  for messages.
/// @throws ConfigError "FILE:LINE: …" for what is no list, a weight that is not positive, a name that comes twice.
std::vector<PathList> parse_path_lists(std::string_view text, std::string_view file);

/// parse_path_lists of a file. @throws IoError if it cannot be read.
std::vector<PathList> read_path_lists(const std::string& file);

}  // namespace espalier::data_indexed
