#pragma once

#include <cstdint>

#include "espalier/kernels.hpp"

/// The part of attention between its matrix products: scale + ALiBi + mask + softmax (+ dropout) over rows of scores.
namespace espalier::kernels_fused::cuda {

/// What a row of probabilities is remade from. The two are kept apart, since a log-sum-exp near 1,000 has lost the
/// digits that the probabilities need.
struct RowStatistics {
  float largest;
  float total;
};

/// Score matrices that lie one behind the other: rows [first_row, first_row + rows) of the queries, columns [0, keys).
struct ScoreBlock {
  std::int64_t first_item = 0;  ///< batch · heads + head of the first matrix
  std::int64_t items = 0;       ///< matrices
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t row_stride = 0;  ///< >= keys, a multiple of kScorePadding; matrices are rows · row_stride elements apart

  std::int64_t elements() const { return items * rows * row_stride; }
};

inline constexpr std::int64_t kScorePadding = 8;  ///< rows start at 16-byte borders in every working type

/// probabilities = dropout(softmax(scores · scale + ALiBi)) in the working type, 0 where masked; a row without an
/// allowed key is all zeros, NaN stays NaN. One warp a row up to 4,096 keys, one block a row above.
/// @param shape         its `saved` gets the rows' statistics unless it is empty
/// @param scores        f32, 16-byte aligned
/// @param probabilities working type of the shape, 16-byte aligned
void softmax_forward(const Attention& shape, const ScoreBlock& block, const float* scores, void* probabilities,
                     Stream& stream);

/// From the scores, the statistics that forward saved and the gradient of what forward wrote: the same probabilities,
/// and the gradient of q · k (of `scores`, times the scale). All as in softmax_forward.
void softmax_backward(const Attention& shape, const ScoreBlock& block, const float* scores,
                      const float* grad_probabilities, void* probabilities, void* grad_scores, Stream& stream);

/// to(position, channel) of each item = from[item][position][channel] rounded, for positions below `filled`, else 0.
/// @param from  f32 [items][shape.keys][shape.head_dim]
void store_key_gradient(const Attention& shape, std::int64_t first_item, std::int64_t items, std::int64_t filled,
                        const float* from, const AttentionOperand& to, Stream& stream);

}  // namespace espalier::kernels_fused::cuda
