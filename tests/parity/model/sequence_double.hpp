// Tensor parallelism with the residual stream split by tokens outside of sharded regions (sequence parallelism,
// Korthikanti et al. 2022, arXiv:2205.05198): all-gathers and reduce-scatters at the borders, norms and row-parallel
// biases with partial gradients.
#pragma once

#include "support/doubles/tensor_double.hpp"

namespace espalier::testing_support {

class SequenceDouble final : public TensorParallel {
 public:
  explicit SequenceDouble(Communicator& group) : group_(group), whole_(group) {}

  int size() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }
  Reason accepts(const ModelShape& model) const override { return whole_.accepts(model); }
  Placement place(const Parameter& parameter) const override {
    Placement place = whole_.place(parameter);
    if (place.copies == Copies::whole) place.copies = Copies::partial;
    return place;
  }
  std::int64_t rows(std::int64_t tokens, Region region) const override {
    return region == Region::inside ? tokens : tokens / group_.size();
  }
  std::int64_t first_row(std::int64_t tokens) const override { return tokens / group_.size() * group_.rank(); }

  Border enter(const View& x, const View& scratch, Pass pass, Stream& stream) override {
    return pass == Pass::forward ? gathered(x, scratch, stream) : scattered(x, scratch, stream);
  }
  Border leave(const View& x, const View& scratch, Pass pass, Stream& stream) override {
    return pass == Pass::forward ? scattered(x, scratch, stream) : gathered(x, scratch, stream);
  }
  Request reduce(const View& x, Reduce how, Stream& stream) override { return group_.start_all_reduce(x, how, stream); }
  void finish(Request request, Stream& stream) override { group_.finish(request, stream); }

 private:
  Border gathered(const View& x, const View& scratch, Stream& stream) {
    return {scratch, group_.start_all_gather(x, scratch, stream)};
  }
  Border scattered(const View& x, const View& scratch, Stream& stream) {
    return {scratch, group_.start_reduce_scatter(x, scratch, Reduce::sum_rank_order, stream)};
  }

  Communicator& group_;
  TensorDouble whole_;
};

}  // namespace espalier::testing_support
