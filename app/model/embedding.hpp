#pragma once

#include "model/context.hpp"

namespace espalier::app {

/// Positions in the rank's parameter list; -1 where the model has none.
struct EmbeddingParameters {
  int word = -1;
  int position = -1;
  int norm_weight = -1, norm_bias = -1;
  std::int64_t first_id = 0;  ///< first row of the table on this rank
};

/// What backward needs.
struct EmbeddingSaved {
  View sum;         ///< [outside, hidden] before the norm; empty without an embedding norm
  View mean, rstd;  ///< [outside] f32, likewise
  std::size_t carve(const ModelContext& context, const Tokens& tokens, std::byte* memory);
};

/// dst [outside, hidden] = dropout(norm(word[ids] + position)).
/// @param ids  i32 [tokens], @param positions i32 [tokens], position of each token in its sample; read with learned
/// positions only.
void embedding_forward(const ModelContext& context, const Tokens& tokens, const EmbeddingParameters& parameters,
                       const View& ids, const View& positions, const EmbeddingSaved& saved, const View& dst);

/// @param grad  [outside, hidden] gradient of dst, changed.
void embedding_backward(const ModelContext& context, const Tokens& tokens, const EmbeddingParameters& parameters,
                        const View& ids, const View& positions, const EmbeddingSaved& saved, const View& grad,
                        int micro_batch);

}  // namespace espalier::app
