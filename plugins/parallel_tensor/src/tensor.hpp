#pragma once

#include "espalier/host.hpp"
#include "espalier/parallel/tensor.hpp"
#include "options.hpp"
#include "sharding.hpp"

namespace espalier::parallel_tensor {

/// Megatron-LM's tensor parallelism. Outside sharded regions every rank has all tokens, or with sequence parallelism an
/// equal contiguous part of them.
///
/// | border | without | with sequence parallelism |
/// | enter forward, leave backward | identity | all-gather |
/// | enter backward, leave forward | all-reduce | reduce-scatter |
/// A pass over tokens that do not divide by the size (evaluation, decoding) keeps them whole at its borders.
class Tensor final : public TensorParallel {
 public:
  /// @throws ConfigError where the group is not what the grid says.
  Tensor(const ConfigView& config, HostContext& host);

  int size() const override { return part_.size; }
  int rank() const override { return part_.rank; }
  Reason accepts(const ModelShape& model) const override;
  Placement place(const Parameter& parameter) const override { return parallel_tensor::place(parameter, part_); }
  std::int64_t rows(std::int64_t tokens, Region region) const override;
  std::int64_t first_row(std::int64_t tokens) const override;

  DType partial_dtype(DType working) const override {
    return options_.reduce_f32 && part_.size > 1 ? DType::f32 : working;
  }
  Border enter(const View& x, const View& scratch, Pass pass, Stream& stream) override;
  Border leave(const View& x, const View& scratch, Pass pass, Stream& stream) override;
  Request reduce(const View& x, Reduce how, Stream& stream) override;
  void finish(Request request, Stream& stream) override { group_.finish(request, stream); }

 private:
  bool cuts(std::int64_t tokens) const { return part_.sequence_parallel && tokens % part_.size == 0; }
  Border spread(const View& x, const View& scratch, Pass pass, Stream& stream);
  Border sum(const View& x, const View& scratch, Pass pass, Stream& stream);
  void check_divided(const View& scratch, Pass pass) const;

  Options options_;
  HostContext& host_;
  Communicator& group_;
  Part part_;
};

}  // namespace espalier::parallel_tensor
