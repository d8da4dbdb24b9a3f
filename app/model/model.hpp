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
  Model(const ModelContext& context, std::span<const LayerRange> parts, std::span<const LocalParameter> parameters,
        int max_micro_batches);

  /// Starts a list of instructions. Every slot must be closed.
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
  void backward_input(int chunk, int micro_batch, double loss_scale, double* sums, bool weights_follow);
  void backward_weight(int chunk, int micro_batch);
  /// Both halves, block by block, so that slots close early.
  void backward(int chunk, int micro_batch, double loss_scale, double* sums);

  void watch_logits(LogitsSink* sink) { sink_ = sink; }

 private:
  /// What is kept of one block between the passes.
  struct BlockSlots {
    Slot linear;       // inputs of the four linear maps: until the weight half
    Slot rest;         // what only the input half needs
    Slot gradients;    // output gradients of the linear maps: from the input half to the weight half
    Slot stream_grad;  // gradient of the block's output
  };
  struct State {
    std::vector<BlockSlots> blocks;
    std::vector<Slot> stream;  // input of each block, then the output of the last: blocks + 1
    Slot embedding;            // what the embedding's backward needs
    Slot batch;                // ids, targets
    Slot input_grad;           // gradient of the part's input
    std::int64_t first_sample = 0;
  };

  State& state(int chunk, int micro_batch) {
    return states_[static_cast<std::size_t>(micro_batch) * parts_.size() + static_cast<std::size_t>(chunk)];
  }
  bool first(int chunk) const { return parts_[static_cast<std::size_t>(chunk)].contains(0); }
  bool last(int chunk) const { return parts_[static_cast<std::size_t>(chunk)].contains(head_layer_); }
  LayerRange blocks(int chunk) const;
  View stream_view(const Slot& slot) const;
  Tokens tokens(const State& state) const;
  void load_batch(State& state, int chunk, int micro_batch, BatchSource& batches);
  View ids(const State& state) const;
  View targets(const State& state) const;
  void block_forward(State& state, int layer, int position, bool with_output);
  void block_backward_input(State& state, int layer, int position, int micro_batch);
  void block_backward_weight(State& state, int layer, int position, int micro_batch);
  void head_forward(State& state, double* sums, int micro_batch);
  View part_gradient(State& state, int chunk, int micro_batch, double loss_scale, double* sums);
  void finish_input_half(State& state, int chunk, int micro_batch);

  ModelContext context_;
  std::span<const LayerRange> parts_;
  int head_layer_ = 0;
  EmbeddingParameters embedding_;
  std::vector<BlockParameters> blocks_;  // by layer number, those held here
  HeadParameters head_;
  std::vector<State> states_;
  Walk walk_;
  DeviceMemory positions_memory_;
  LogitsSink* sink_ = nullptr;
};

}  // namespace espalier::app
