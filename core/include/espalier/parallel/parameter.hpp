#pragma once

#include <cstdint>
#include <string_view>

#include "espalier/shape.hpp"

namespace espalier {

/// What a parameter is in the model; strategies shard by role, never by name.
enum class Role : std::uint8_t {
  word_embedding,     ///< [vocab, hidden]
  position_embedding, ///< [positions, hidden]
  norm_weight,        ///< [hidden]
  norm_bias,          ///< [hidden]
  qkv_weight,         ///< [3 · hidden, hidden], rows per head: its q, then its k, then its v
  qkv_bias,           ///< [3 · hidden]
  attention_out_weight,  ///< [hidden, hidden]
  attention_out_bias,    ///< [hidden]
  mlp_up_weight,      ///< [ffn, hidden]
  mlp_up_bias,        ///< [ffn]
  mlp_down_weight,    ///< [hidden, ffn]
  mlp_down_bias,      ///< [hidden]
  head_weight,        ///< [vocab, hidden], untied models only
};

/// A logical parameter: the same list in the same order on every rank and every topology.
struct Parameter {
  std::string_view name;  ///< Hugging Face's name without "transformer.": "h.0.mlp.dense_h_to_4h.weight"
  Shape shape;            ///< logical, without padding
  Role role = Role::norm_weight;
  int layer = 0;          ///< 0 embedding, 1 … L blocks, L + 1 head (final norm, untied head)
  bool tied = false;      ///< used by the first and the last layer
  bool decays = false;    ///< takes weight decay
  int index = 0;          ///< position in the logical list: slot in the verdict
};

/// How a parameter lies over the tensor group. `partial`: every rank holds the whole, but its gradient is only a part of the sum
/// (norms and row-parallel biases under sequence parallelism).
enum class Copies : std::uint8_t { split, whole, partial };

/// A rank's piece of a logical parameter: a contiguous range of one dimension.
struct Placement {
  Copies copies = Copies::whole;
  int dim = -1;            ///< dimension that is split; -1: none
  std::int64_t begin = 0;  ///< range in the padded dimension
  std::int64_t end = 0;
  std::int64_t real_end = 0;  ///< end without padding (>= begin); rows or columns in [real_end, end) are padding
  Shape local;             ///< shape this rank stores, padding included
};

/// A parameter this rank holds, of the layers its stage holds, in the order of the logical list.
struct LocalParameter {
  Parameter parameter;
  Placement placement;
};

}  // namespace espalier
