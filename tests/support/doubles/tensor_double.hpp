// Tensor parallelism in its simplest form: columns, rows and vocabulary split, an all-reduce at each border, no
// overlap.
#pragma once

#include <algorithm>
#include <string>

#include "espalier/parallel/tensor.hpp"

namespace espalier::testing_support {

/// Megatron-LM's split (arXiv:1909.08053) over the ranks of a group; activations are whole outside a sharded region.
class TensorDouble final : public TensorParallel {
 public:
  explicit TensorDouble(Communicator& group) : group_(group) {}

  int size() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }

  Reason accepts(const ModelShape& model) const override {
    if (model.heads % size() != 0) {
      return std::to_string(model.heads) + " heads cannot be split over " + std::to_string(size()) + " ranks";
    }
    if (model.ffn % size() != 0) {
      return "ffn of " + std::to_string(model.ffn) + " cannot be split over " + std::to_string(size()) + " ranks";
    }
    return {};
  }

  Placement place(const Parameter& parameter) const override {
    switch (parameter.role) {
      case Role::word_embedding:
      case Role::head_weight:
      case Role::qkv_weight:  // rows are ordered by head
      case Role::qkv_bias:
      case Role::mlp_up_weight:
      case Role::mlp_up_bias:
        return split(parameter, 0);
      case Role::attention_out_weight:
      case Role::mlp_down_weight:
        return split(parameter, 1);
      case Role::position_embedding:
      case Role::norm_weight:
      case Role::norm_bias:
      case Role::attention_out_bias:
      case Role::mlp_down_bias:
        break;
    }
    const std::int64_t rows = parameter.shape[0];
    return {Copies::whole, -1, 0, rows, rows, parameter.shape};
  }

  std::int64_t rows(std::int64_t tokens, Region) const override { return tokens; }
  std::int64_t first_row(std::int64_t) const override { return 0; }

  Border enter(const View& x, const View&, Pass pass, Stream& stream) override {
    return pass == Pass::forward ? Border{x, {}} : summed(x, stream);
  }
  Border leave(const View& x, const View&, Pass pass, Stream& stream) override {
    return pass == Pass::forward ? summed(x, stream) : Border{x, {}};
  }
  Request reduce(const View& x, Reduce how, Stream& stream) override { return group_.start_all_reduce(x, how, stream); }
  void finish(Request request, Stream& stream) override { group_.finish(request, stream); }

 private:
  Border summed(const View& x, Stream& stream) {
    return {x, group_.start_all_reduce(x.flat(), Reduce::sum_rank_order, stream)};
  }

  /// Equal parts of a dimension, padded up to the group's size (only the vocabulary ever needs it).
  Placement split(const Parameter& parameter, int dim) const {
    const std::int64_t logical = parameter.shape[dim];
    const std::int64_t part = (logical + size() - 1) / size();
    Placement place{Copies::split, dim, part * rank(), part * (rank() + 1), 0, parameter.shape};
    place.real_end = std::clamp(logical, place.begin, place.end);
    place.local[dim] = part;
    return place;
  }

  Communicator& group_;
};

}  // namespace espalier::testing_support
