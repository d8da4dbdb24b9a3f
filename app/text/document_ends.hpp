#pragma once

#include <memory>

#include "espalier/dataset.hpp"

namespace espalier::app {

/// The same samples, without the targets that follow an end-of-document id: what a document starts with cannot be told
/// from the one before. Predicting the id itself counts. Megatron calls it --eod-mask-loss.
/// @param dataset  kept by reference.
std::unique_ptr<Dataset> without_document_starts(const Dataset& dataset, std::int32_t end_of_document);

}  // namespace espalier::app
