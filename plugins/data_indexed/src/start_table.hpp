#pragma once
#include <espalier/host.hpp>

#include "sample_set.hpp"

namespace espalier::data_indexed {

/// Logs what a mapped set is made of: a table with path, weight as given and normalised, borders, documents, tokens,
/// samples asked of each part and built, epochs that means; a line for a held-out set of one part.
/// @param samples  that the run may read.
void log_set(HostContext& host, const BlendedSet& set, std::int64_t samples, std::int64_t seq_length);

}  // namespace espalier::data_indexed
