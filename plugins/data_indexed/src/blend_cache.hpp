#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "blend.hpp"

namespace espalier::data_indexed {

/// What the order of a blend by weights follows from. It takes positions × parts steps to make, so that of a large
/// blend is kept in files like the index arrays.
struct BlendRequest {
  std::vector<double> weights;  // as BlendOrder takes them
  std::int64_t positions = 0;
  std::string stem;  // of the files: STEM_blend_{N}ns_{HASH}_{parts,counts}.npy

  /// Whether it is large enough to be kept.
  bool cached() const;
};

/// Maps the order when it is there; reads check files and headers only. Empty with the reason in `why` otherwise.
std::optional<BlendOrder> open_blend(const BlendRequest& request, std::string& why);

/// Makes the order and writes it, each file by one rename. @throws IoError if the folder cannot be written.
void store_blend(const BlendRequest& request);

}  // namespace espalier::data_indexed
