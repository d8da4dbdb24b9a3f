#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/tensor.hpp"
#include "espalier/threads.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// Everything is kept by pointer and must outlive the decoder; weights are those of `data` at each call.
struct DecoderSetup {
  const RunFacts* facts = nullptr;
  const ParameterList* parameters = nullptr;
  std::span<const LocalParameter> local;  ///< Executor::parameters()
  Backend* backend = nullptr;
  TensorParallel* tensor = nullptr;
  DataParallel* data = nullptr;
  std::span<const LayerRange> parts;  ///< Executor::parts(), a range a chunk; empty: the whole model on one stage
  Communicator* pipeline = nullptr;  ///< the stages, null: one; chunk c of stage s is part c · stages + s of the model
};

/// Forward of one or several sequences of different lengths with a key/value cache, over pipeline stages and a tensor
/// group. The cache is [own layers][keys, values][sequence][own heads][max length][head_dim] in the working type.
///
/// A pass takes tokens of several sequences, however many of each: their rows lie one after the other without padding.
/// All but attention treats rows alike; in attention each sequence has its own keys.
///
/// Every rank of the model calls extend in the same order with the same tokens. A stage waits for the stage before it,
/// not for those behind: calls for different sequences run at the same time on different stages. Only the last stage
/// has logits, the same on all of its ranks.
class Decoder {
 public:
  /// Tokens to be appended to a sequence (a prompt, more of one, or the last one drawn); at least one.
  struct Part {
    int sequence = 0;
    std::span<const std::int32_t> tokens;
  };

  static constexpr std::int64_t kPromptBlock = 512;

  /// @param sequences  how many the cache has room for.
  /// @param max_length  tokens of the longest, prompt included.
  /// @param prompt_block  tokens worked off at once.
  /// @throws ConfigError when the topology or the model cannot decode, or not so many tokens; DeviceError when memory
  /// is short, before any of it is touched.
  Decoder(const DecoderSetup& setup, int sequences, std::int64_t max_length, std::int64_t prompt_block = kPromptBlock);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Whether this rank gets logits: it is on the last stage.
  bool has_logits() const;
  /// Ids that have a logit: the tokenizer's vocabulary.
  std::int64_t columns() const;
  int sequences() const;
  std::int64_t length(int sequence) const;
  /// Forgets a sequence.
  void reset(int sequence);
  /// Appends tokens to different sequences, in passes of at most `prompt_block` rows (or one for each sequence).
  /// @param logits  [parts.size() · columns()] host memory: those after the last token of each, written where
  /// has_logits().
  /// @param read  called after each pass with a part and how many of its tokens the pass had.
  void extend(std::span<const Part> parts, std::span<float> logits, FunctionRef<void(std::size_t, std::int64_t)> read);
  void extend(std::span<const Part> parts, std::span<float> logits);
  void extend(int sequence, std::span<const std::int32_t> tokens, std::span<float> logits);
  /// Waits until the next stage has taken what was sent to it. Call it before the decoder goes.
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::app
