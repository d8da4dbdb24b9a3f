#include "sharding.hpp"

#include <algorithm>
#include <string>

namespace espalier::parallel_tensor {
namespace {

Placement whole(const Parameter& parameter, Copies copies) {
  const std::int64_t rows = parameter.shape[0];
  return {copies, -1, 0, rows, rows, parameter.shape};
}

/// Equal parts of a dimension. Only the vocabulary may not divide: accepts() asks that all else does.
Placement split(const Parameter& parameter, int dim, const Part& part) {
  const std::int64_t logical = parameter.shape[dim];
  const std::int64_t rows = (logical + part.size - 1) / part.size;
  Placement place{Copies::split, dim, rows * part.rank, rows * (part.rank + 1), 0, parameter.shape};
  place.real_end = std::clamp(logical, place.begin, place.end);
  place.local[dim] = rows;
  return place;
}

std::string divisors(std::int64_t n) {
  std::string text;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

}  // namespace

Placement place(const Parameter& parameter, const Part& part) {
  if (part.size == 1) return whole(parameter, Copies::whole);
  switch (parameter.role) {
    case Role::word_embedding:
    case Role::head_weight:
    case Role::qkv_weight:
    case Role::qkv_bias:
    case Role::mlp_up_weight:
    case Role::mlp_up_bias:
      return split(parameter, 0, part);
    case Role::attention_out_weight:
    case Role::mlp_down_weight:
      return split(parameter, 1, part);
    case Role::position_embedding:
    case Role::norm_weight:
    case Role::norm_bias:
    case Role::attention_out_bias:
    case Role::mlp_down_bias:
      break;
  }
  return whole(parameter, part.sequence_parallel ? Copies::partial : Copies::whole);
}

Reason accepts(const ModelShape& model, const BatchPlan& batch, const Part& part) {
  const std::string ranks = std::to_string(part.size) + " ranks";
  if (model.heads % part.size != 0) {
    return std::to_string(model.heads) + " heads cannot be split over " + ranks +
           ": choose a size that divides them (" + divisors(model.heads) + ")";
  }
  if (model.ffn % part.size != 0) {
    return "an ffn of " + std::to_string(model.ffn) + " cannot be split over " + ranks +
           ": choose a size that divides it";
  }
  if (!part.sequence_parallel) return {};
  for (std::size_t i = 0; i + 1 < batch.micro_batches.size(); i += 2) {
    const std::int64_t samples = batch.micro_batches[i];
    if (samples * model.seq_length % part.size == 0) continue;
    return "sequence_parallel: a micro-batch of " + std::to_string(samples) + " · " + std::to_string(model.seq_length) +
           " tokens (micro-batch size · sequence length) cannot be cut into " + std::to_string(part.size) +
           " equal parts: choose sizes that divide, or turn sequence_parallel off";
  }
  return {};
}

}  // namespace espalier::parallel_tensor
