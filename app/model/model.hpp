#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/tensor.hpp"
#include "model/block.hpp"
#include "model/context.hpp"
#include "model/embedding.hpp"
#include "model/head.hpp"
#include "model/parameters.hpp"
#include "train/batch.hpp"

namespace espalier::app {

/// The parts of BLOOM that one rank holds, with hand-written forward and backward: one code for every topology. What
/// differs between topologies is asked of the strategies in the context.
///
/// A pass over (chunk, micro-batch): input (embedding, or a received activation) → forward → output (sent on, or kept
/// for the head) → backward_input (the head makes loss and gradient here) → backward_weight. Every range it keeps in
/// between is a slot of the arena, opened when made and closed at its last use.
class Model {
 public:
  /// @param parts  layers of each chunk; kept by the caller, as are parameters and what the context points to.
  /// @param walks  every list that will be begun: room for their micro-batches and tokens.
  Model(const ModelContext& context, std::span<const LayerRange> parts, std::span<const LocalParameter> parameters,
        std::span<const Walk> walks);

  /// Starts a list of instructions. Every slot of the one before is closed.
  void begin(const Walk& walk);

  /// Where the activation (or the gradient) that a neighbour sends is to be received: [outside rows, hidden] working.
  View open_input(int chunk, int micro_batch);
  View open_gradient(int chunk, int micro_batch);
  /// What a neighbour gets; close_… when the message is through.
  View output(int chunk, int micro_batch);
  void close_output(int chunk, int micro_batch);
  View input_gradient(int chunk, int micro_batch);
  void close_input_gradient(int chunk, int micro_batch);

  /// @param loss_scale  the head's gradient starts from (p − y) · loss_scale / (samples · seq).
  /// @param sums  device f64 [2]: Σ loss and number of targets are added where this rank counts them.
  void forward(int chunk, int micro_batch, BatchSource& batches, double* sums);
  void backward_input(int chunk, int micro_batch, double loss_scale, double* sums);
  void backward_weight(int chunk, int micro_batch);
  /// Both halves, block by block, so that slots close early.
  void backward(int chunk, int micro_batch, double loss_scale, double* sums);

  /// Whether every rank of the tensor group holds all rows of the residual stream (no sequence parallelism).
  bool same_rows_on_tensor_ranks() const { return tokens_.outside == tokens_.count(); }

  void watch_logits(LogitsSink* sink) { sink_ = sink; }

 private:
  /// What is kept of one block between the passes.
  struct BlockSlots {
    Slot inputs;     // BlockInputs: until the weight half
    Slot saved;      // BlockSaved: until the input half
    Slot gradients;  // BlockGradients: from the input half to the weight half
  };
  /// What is kept of one micro-batch in one chunk.
  struct State {
    std::vector<BlockSlots> blocks;
    std::vector<Slot> stream;     // [blocks + 1] input of each block, then the output of the last
    std::vector<Slot> gradients;  // [blocks + 1] likewise
    Slot embedding;               // EmbeddingSaved
    Slot batch;                   // ids, targets
    std::int64_t first_sample = 0;
  };

  State& state(int chunk, int micro_batch) {
    return states_[static_cast<std::size_t>(micro_batch) * parts_.size() + static_cast<std::size_t>(chunk)];
  }
  const LayerRange& part(int chunk) const { return parts_[static_cast<std::size_t>(chunk)]; }
  bool first(int chunk) const { return part(chunk).contains(0); }
  bool last(int chunk) const { return part(chunk).contains(head_layer_); }
  /// Layers of the chunk that are blocks.
  LayerRange blocks(int chunk) const;
  View stream_view(const Slot& slot) const;
  View open_stream(Slot& slot);
  View ids(const State& state) const;
  View targets(const State& state) const;
  View positions() const;
  void load_batch(State& state, int chunk, int micro_batch, BatchSource& batches);
  HeadPass head_pass(const State& state, int micro_batch, double loss_scale, double* sums) const;
  /// Opens the block's slots and computes it; without output what a recomputation needs.
  void block_forward(State& state, int layer, std::size_t position, bool with_output);
  /// @param both  the weight half too, in the time that sums over the tensor group take.
  void block_backward_input(State& state, int layer, std::size_t position, int micro_batch, bool both);
  void block_backward_weight(State& state, int layer, std::size_t position, int micro_batch);
  void finish_block_backward(State& state, int layer, std::size_t position, int micro_batch);
  /// The head's own weights, and the tied table where it is another layer's.
  void acquire_head();
  void release_head();
  void head_backward(State& state, int micro_batch, double loss_scale, double* sums);
  void embedding_part_forward(State& state);
  void embedding_part_backward(State& state, int micro_batch);

  ModelContext context_;
  std::span<const LayerRange> parts_;
  int head_layer_ = 0;
  EmbeddingParameters embedding_;
  std::vector<BlockParameters> blocks_;  // by layer number, those held here
  HeadParameters head_;
  std::vector<State> states_;
  Walk walk_;
  Tokens tokens_;
  std::vector<std::int32_t> positions_;  // [max tokens] position of each token in its sample; learned positions only
  DeviceMemory positions_memory_;
  LogitsSink* sink_ = nullptr;
};

}  // namespace espalier::app
