#pragma once

#include <string>
#include <vector>

namespace espalier::app {

/// "rank 3", "ranks 0, 2-7". @param ranks  ascending.
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace espalier::app
