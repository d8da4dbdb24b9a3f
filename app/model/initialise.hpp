#pragma once

#include <cstdint>
#include <span>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "model/choices.hpp"

namespace espalier::app {

struct InitialWeights {
  double std = 0.02;  ///< BLOOM: 0.0048 = sqrt(1 / 3h); output layers get std / sqrt(2 L)
  EmbeddingInit embedding = EmbeddingInit::normal;
  std::uint64_t seed = 1234;
};

/// Fills every "master" piece by logical coordinates: the value of an element depends on seed, parameter and logical
/// flat index alone, so any topology starts from the same weights. Matrices Normal(0, std), attention output and second
/// MLP matrix with std / sqrt(2 L) (Megatron-LM's scaled initialisation), biases 0, norm weights 1, norm biases 0,
/// padding 0. Ends with data.refresh(): collective over the data group.
void initialise(const ModelShape& shape, const InitialWeights& how, std::span<const LocalParameter> parameters,
                DataParallel& data, Backend& backend);

}  // namespace espalier::app
