#pragma once

#include <memory>

#include "espalier/dataset.hpp"
#include "espalier/facts.hpp"

namespace espalier::app {

/// The built-in dataset: text from a random Markov chain of 64 symbols, so that a run needs no files and its loss falls. Each sample is
/// a function of seed and index alone; sets "train" and "valid" never share one. Ids are 32 … 95, or 0 … vocab − 1 below 96 ids.
std::unique_ptr<Dataset> make_synthetic_dataset(const RunFacts& facts);

}  // namespace espalier::app
