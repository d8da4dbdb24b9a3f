#pragma once

#include "model/attention.hpp"
#include "model/mlp.hpp"

namespace espalier::app {

/// A transformer block: attention, then MLP, each pre-norm with the residual stream added.
struct BlockParameters {
  AttentionParameters attention;
  MlpParameters mlp;
};

/// Inputs of the four linear maps: what the weight half reads.
struct BlockInputs {
  View attention_normed;  ///< [outside, hidden]
  View attended;          ///< [inside, own hidden]
  View mlp_normed;        ///< [outside, hidden]
  View activated;         ///< [inside, own ffn], after GELU
  std::size_t carve(const ModelContext& context, const Tokens& tokens, std::byte* memory);
};

/// What only the input half reads.
struct BlockSaved {
  AttentionSaved attention;
  View middle;  ///< [outside, hidden] residual stream between attention and MLP
  MlpSaved mlp;
  std::size_t carve(const ModelContext& context, const Tokens& tokens, std::byte* memory);
};

/// Output gradients of the four linear maps: from the input half to the weight half.
struct BlockGradients {
  View attention_out;  ///< [inside, hidden]; `middle` itself when nothing is dropped or gathered
  View qkv;            ///< [inside, 3 own hidden]
  View mlp_down;       ///< [inside, hidden]; the block's own output gradient when nothing is dropped or gathered
  View mlp_up;         ///< [inside, own ffn]
  View middle;  ///< [outside, hidden] gradient of BlockSaved::middle; the same as attention_out when nothing is dropped
  /// @param grad_dst  gradient of the block's output.
  std::size_t carve(const ModelContext& context, const Tokens& tokens, const View& grad_dst, std::byte* memory);
};

}  // namespace espalier::app
