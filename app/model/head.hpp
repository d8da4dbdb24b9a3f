#pragma once

#include "model/context.hpp"

namespace espalier::app {

/// Positions in the rank's parameter list.
struct HeadParameters {
  int norm_weight = -1, norm_bias = -1;
  int weight = -1;            ///< the tied embedding or a weight of its own
  int weight_layer = 0;       ///< layer to acquire for it
  std::int64_t first_id = 0;  ///< first row on this rank
  std::int64_t valid = 0;     ///< own rows below the tokenizer's vocabulary; the others are masked
};

/// Sees logits and losses as the head computes them.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  /// @param first_token  flattened token of row 0 in the micro-batch.
  /// @param logits  f32 [rows, own columns], device memory, valid until the stream passes; column 0 is id `first_id`.
  virtual void logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) = 0;
  /// @param loss  f32 [rows] of the same tokens, device memory, valid until the stream passes: −log p(target), the same
  /// on all ranks of the tensor group; where the target is masked, anything.
  virtual void losses(int /*micro_batch*/, std::int64_t /*first_token*/, const View& /*loss*/) {}
};

struct HeadPass {
  int micro_batch = 0;
  View targets;            ///< i32 [tokens], negative: masked
  double scale = 0;        ///< gradient of the logits is (p − y) · scale
  double* sums = nullptr;  ///< device f64 [2]: Σ loss, targets; added on tensor rank 0 only
  LogitsSink* sink = nullptr;
};

/// Rows of logits worked off at once: a function of vocabulary and device alone, so that sums do not depend on the
/// topology of the batch.
/// @param logits_bytes  ModelContext::logits_bytes.
std::int64_t head_chunk_rows(std::int64_t own_columns, std::int64_t logits_bytes);

/// Loss of src [outside, hidden] (the last block's output): final norm, logits in FP32, cross entropy over the split
/// vocabulary.
void head_loss(const ModelContext& context, const Tokens& tokens, const HeadParameters& parameters, const View& src,
               const HeadPass& pass);

/// Loss and all gradients at once (the logits are too big to keep): grad_src [outside, hidden] is written.
void head_loss_and_backward(const ModelContext& context, const Tokens& tokens, const HeadParameters& parameters,
                            const View& src, const View& grad_src, const HeadPass& pass);

}  // namespace espalier::app
