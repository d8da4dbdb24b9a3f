#include "model/roles.hpp"

#include <algorithm>

#include "model/parameters.hpp"

namespace espalier::app {
namespace {

void place_norm(RolePositions& roles, const Parameter& parameter, int head_layer, int position) {
  const bool weight = parameter.role == Role::norm_weight;
  if (parameter.layer == 0) {
    (weight ? roles.embedding.norm_weight : roles.embedding.norm_bias) = position;
  } else if (parameter.layer == head_layer) {
    (weight ? roles.head.norm_weight : roles.head.norm_bias) = position;
  } else {
    BlockParameters& block = roles.blocks[static_cast<std::size_t>(parameter.layer)];
    // A block has two norms, attention's first: logical order tells them apart.
    int& attention = weight ? block.attention.norm_weight : block.attention.norm_bias;
    int& mlp = weight ? block.mlp.norm_weight : block.mlp.norm_bias;
    (attention < 0 ? attention : mlp) = position;
  }
}

void place_head(HeadParameters& head, const ModelShape& shape, const LocalParameter& local, int position) {
  const Placement& place = local.placement;
  const std::int64_t ids = shape.tokenizer_vocab > 0 ? std::min(shape.tokenizer_vocab, shape.vocab) : shape.vocab;
  const bool split = place.dim == 0;
  const std::int64_t begin = split ? place.begin : 0;
  const std::int64_t end = split ? place.real_end : local.parameter.shape.rows();
  head.weight = position;
  head.weight_layer = local.parameter.layer;
  head.first_id = begin;
  head.valid = std::max<std::int64_t>(std::min(ids, end) - begin, 0);
}

}  // namespace

RolePositions find_roles(const ModelShape& shape, std::span<const LocalParameter> parameters) {
  const int head_layer = static_cast<int>(shape.layers) + 1;
  RolePositions roles;
  roles.blocks.resize(static_cast<std::size_t>(shape.layers) + 1);
  for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
    const LocalParameter& local = parameters[static_cast<std::size_t>(p)];
    const Parameter& parameter = local.parameter;
    const auto block = [&]() -> BlockParameters& { return roles.blocks[static_cast<std::size_t>(parameter.layer)]; };
    switch (parameter.role) {
      case Role::word_embedding:
        roles.embedding.word = p;
        roles.embedding.first_id = local.placement.dim == 0 ? local.placement.begin : 0;
        if (parameter.tied) place_head(roles.head, shape, local, p);
        break;
      case Role::position_embedding:
        roles.embedding.position = p;
        break;
      case Role::norm_weight:
      case Role::norm_bias:
        place_norm(roles, parameter, head_layer, p);
        break;
      case Role::qkv_weight:
        block().attention.qkv_weight = p;
        break;
      case Role::qkv_bias:
        block().attention.qkv_bias = p;
        break;
      case Role::attention_out_weight:
        block().attention.out_weight = p;
        break;
      case Role::attention_out_bias:
        block().attention.out_bias = p;
        break;
      case Role::mlp_up_weight:
        block().mlp.up_weight = p;
        break;
      case Role::mlp_up_bias:
        block().mlp.up_bias = p;
        break;
      case Role::mlp_down_weight:
        block().mlp.down_weight = p;
        break;
      case Role::mlp_down_bias:
        block().mlp.down_bias = p;
        break;
      case Role::head_weight:
        place_head(roles.head, shape, local, p);
        break;
    }
  }
  return roles;
}

OwnWidths own_widths(const ModelShape& shape, const ParameterList& list, const TensorParallel& tensor) {
  OwnWidths own{shape.heads, 0, shape.ffn};
  for (const Parameter& parameter : list.all()) {
    if (parameter.role == Role::qkv_bias) {
      const Placement place = tensor.place(parameter);
      const std::int64_t rows = 3 * shape.head_dim();
      own.heads = place.local.elements() / rows;
      own.first_head = place.dim < 0 ? 0 : place.begin / rows;
    } else if (parameter.role == Role::mlp_up_bias) {
      own.ffn = tensor.place(parameter).local.elements();
      return own;
    }
  }
  return own;
}

}  // namespace espalier::app
