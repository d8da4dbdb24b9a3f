#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/tensor.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// Everything is kept by pointer and must outlive the decoder; weights are those of `data` at each call.
struct DecoderSetup {
  const RunFacts* facts = nullptr;
  const ParameterList* parameters = nullptr;
  std::span<const LocalParameter> local;  ///< Executor::parameters(): the whole model, one stage
  Backend* backend = nullptr;
  TensorParallel* tensor = nullptr;
  DataParallel* data = nullptr;
};

/// Forward of one or several sequences of different lengths with a key/value cache, on one pipeline stage; tensor
/// parallel through the strategy. The cache is [layers][sequence][own heads][max length][head_dim], for keys and for
/// values, in the working type. All calls are collective over the tensor group; every rank gets the same logits.
class Decoder {
 public:
  struct Next {
    int sequence = 0;
    std::int32_t token = 0;
  };

  /// @param sequences  how many the cache has room for.
  /// @param max_length  tokens of the longest, prompt included.
  /// @param prompt_block  tokens of a prompt worked off at once.
  /// @throws ConfigError when the topology or the model cannot decode; DeviceError when memory is short.
  Decoder(const DecoderSetup& setup, int sequences, std::int64_t max_length, std::int64_t prompt_block = 512);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Ids that have a logit: the tokenizer's vocabulary.
  std::int64_t columns() const;
  std::int64_t length(int sequence) const;
  /// Forgets a sequence.
  void reset(int sequence);
  /// Appends tokens (a prompt, or more of one) to a sequence.
  /// @param logits  [columns()] host memory, written: those after the last token.
  void extend(int sequence, std::span<const std::int32_t> tokens, std::span<float> logits);
  /// Appends one token to each of several different sequences.
  /// @param logits  [next.size() · columns()] host memory, written.
  void step(std::span<const Next> next, std::span<float> logits);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::app
