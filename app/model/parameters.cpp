#include "model/parameters.hpp"

#include <algorithm>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::app {

bool matrices_decay(const Parameter& parameter) { return parameter.shape.rank() >= 2; }

ParameterList::ParameterList(const ModelShape& shape, const DecayRule& decays)
    : layers_(static_cast<int>(shape.layers) + 2) {
  const std::int64_t hidden = shape.hidden;
  const int head = layers_ - 1;
  const auto add = [&](std::string name, Shape dims, Role role, int layer, bool tied = false) {
    names_.push_back(std::make_unique<std::string>(std::move(name)));
    Parameter parameter{*names_.back(), dims, role, layer, tied, false, static_cast<int>(parameters_.size())};
    parameter.decays = decays(parameter);
    parameters_.push_back(parameter);
  };
  const auto add_norm = [&](const std::string& name, int layer) {
    add(name + ".weight", {hidden}, Role::norm_weight, layer);
    add(name + ".bias", {hidden}, Role::norm_bias, layer);
  };

  add("word_embeddings.weight", {shape.vocab, hidden}, Role::word_embedding, 0, shape.tied_head);
  if (shape.positions > 0) add("position_embeddings.weight", {shape.positions, hidden}, Role::position_embedding, 0);
  if (shape.embedding_norm) add_norm("word_embeddings_layernorm", 0);
  for (int block = 0; block + 2 < layers_; ++block) {
    const std::string prefix = "h." + std::to_string(block) + ".";
    const int layer = block + 1;
    add_norm(prefix + "input_layernorm", layer);
    add(prefix + "self_attention.query_key_value.weight", {3 * hidden, hidden}, Role::qkv_weight, layer);
    add(prefix + "self_attention.query_key_value.bias", {3 * hidden}, Role::qkv_bias, layer);
    add(prefix + "self_attention.dense.weight", {hidden, hidden}, Role::attention_out_weight, layer);
    add(prefix + "self_attention.dense.bias", {hidden}, Role::attention_out_bias, layer);
    add_norm(prefix + "post_attention_layernorm", layer);
    add(prefix + "mlp.dense_h_to_4h.weight", {shape.ffn, hidden}, Role::mlp_up_weight, layer);
    add(prefix + "mlp.dense_h_to_4h.bias", {shape.ffn}, Role::mlp_up_bias, layer);
    add(prefix + "mlp.dense_4h_to_h.weight", {hidden, shape.ffn}, Role::mlp_down_weight, layer);
    add(prefix + "mlp.dense_4h_to_h.bias", {hidden}, Role::mlp_down_bias, layer);
  }
  add_norm("ln_f", head);
  if (!shape.tied_head) add("lm_head.weight", {shape.vocab, hidden}, Role::head_weight, head);
}

const Parameter* ParameterList::find(std::string_view name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

std::int64_t ParameterList::count() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) total += parameter.shape.elements();
  return total;
}

std::vector<LocalParameter> local_parameters(const ParameterList& list, const TensorParallel& tensor,
                                             std::span<const LayerRange> parts) {
  const int head = list.layers() - 1;
  bool holds_embedding = false;
  for (const LayerRange& part : parts) holds_embedding = holds_embedding || part.contains(0);
  std::vector<LocalParameter> local;
  const auto add = [&](Parameter parameter, int layer) {
    parameter.layer = layer;
    local.push_back({parameter, tensor.place(parameter)});
  };
  const std::span<const Parameter> all = list.all();  // ascending by layer
  for (const LayerRange& part : parts) {
    for (int layer = part.first; layer < part.end; ++layer) {
      if (layer == head && !holds_embedding) {
        for (const Parameter& parameter : all) {
          if (parameter.tied) add(parameter, layer);
        }
      }
      auto at = std::ranges::lower_bound(all, layer, {}, &Parameter::layer);
      for (; at != all.end() && at->layer == layer; ++at) add(*at, layer);
    }
  }
  return local;
}

std::vector<double> layer_costs(const ModelShape& shape) {
  const double hidden = static_cast<double>(shape.hidden);
  // Multiply-adds a token: four linear maps, then scores and context over the whole sequence.
  const double block = 4 * hidden * hidden + 2 * hidden * static_cast<double>(shape.ffn) +
                       2 * hidden * static_cast<double>(shape.seq_length);
  std::vector<double> costs(static_cast<std::size_t>(shape.layers) + 2, 1.0);
  costs.front() = 0.0;  // a table look-up
  costs.back() = hidden * static_cast<double>(shape.vocab) / block;
  return costs;
}

}  // namespace espalier::app
