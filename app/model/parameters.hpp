#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"
#include "espalier/parallel/tensor.hpp"

namespace espalier::app {

/// Whether a parameter takes weight decay. Called with every field but `decays` set.
using DecayRule = std::function<bool(const Parameter&)>;

/// BLOOM's rule: matrices (embeddings included) decay, biases and norms do not.
bool matrices_decay(const Parameter& parameter);

/// The logical parameters of a model, in Hugging Face's order and under its names without "transformer.". The same list
/// on every rank of every topology. Owns the names, so views of them live as long as the list (a moved-from list keeps
/// none).
class ParameterList {
 public:
  explicit ParameterList(const ModelShape& shape, const DecayRule& decays = matrices_decay);
  ParameterList(ParameterList&&) = default;
  ParameterList& operator=(ParameterList&&) = default;

  std::span<const Parameter> all() const { return parameters_; }
  int size() const { return static_cast<int>(parameters_.size()); }
  const Parameter& operator[](int index) const { return parameters_[static_cast<std::size_t>(index)]; }
  /// Null when no parameter has that name.
  const Parameter* find(std::string_view name) const;
  /// Logical elements of all parameters, the tied embedding once.
  std::int64_t count() const;
  /// Layers of the model: embedding, blocks, head.
  int layers() const { return layers_; }

 private:
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<Parameter> parameters_;
  int layers_ = 0;
};

/// Layers [first, end): 0 the embedding, 1 … L blocks, L + 1 the head.
struct LayerRange {
  int first = 0;
  int end = 0;
  bool contains(int layer) const { return layer >= first && layer < end; }
  int size() const { return end - first; }
  bool operator==(const LayerRange&) const = default;
};

/// What a rank holds of the given parts of the model (one a chunk, ascending), placed by the tensor strategy, layer by
/// layer.
///
/// The tied embedding is held once by a rank. Where the head is held without the embedding, a copy of it comes first
/// among the head's parameters with `layer` = L + 1 (its name and index unchanged, `tied` set): `tied && layer != 0`
/// marks the second copy, which neither counts in the norm nor writes into checkpoints.
std::vector<LocalParameter> local_parameters(const ParameterList& list, const TensorParallel& tensor,
                                             std::span<const LayerRange> parts);

/// Cost of each layer relative to a block, from its multiply-adds a token: what PipelineParallel::cut takes.
std::vector<double> layer_costs(const ModelShape& shape);

}  // namespace espalier::app
