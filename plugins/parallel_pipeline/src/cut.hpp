#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/facts.hpp"

namespace espalier::parallel_pipeline {

// Each cuts `layers` layers (0 embedding, 1 … L blocks, L + 1 head) into parts and gives the first layer of each part,
// then the number of layers. Parts may come out empty: check_cut.

/// Blocks evenly, earlier parts the larger ones; embedding and head come on top (Megatron-LM).
std::vector<int> cut_blocks(int layers, int parts);
/// Every layer one slot, evenly, earlier parts the larger ones: BLOOM's `type:transformer|embedding`.
std::vector<int> cut_slots(int layers, int parts);
/// The largest part as small as can be, in weights; equal ones with the later parts the larger.
std::vector<int> cut_weights(std::span<const double> weights, int parts);
/// As many layers a part as the list says.
std::vector<int> cut_list(std::span<const std::int64_t> sizes);

/// Parameters of each layer as a stage of several holds them: a tied head has its copy of the embedding.
std::vector<double> layer_parameters(const ModelShape& model);

/// @throws ConfigError when a part is empty or the parts are not all layers.
void check_cut(std::span<const int> cut, int layers, int stages);

}  // namespace espalier::parallel_pipeline
