#include "tensor.hpp"

#include <string>

namespace espalier::parallel_tensor {

Tensor::Tensor(const ConfigView& config, HostContext& host)
    : options_(read_options(config)), host_(host), group_(host.communicator(Group::tensor)) {
  part_.size = group_.size();
  part_.rank = group_.rank();
  part_.sequence_parallel = options_.sequence_parallel && part_.size > 1;
  if (part_.size == 1) return;
  std::string line = "layers over " + std::to_string(part_.size) + " ranks";
  if (part_.sequence_parallel) line += ", tokens too outside of sharded regions";
  if (options_.sum == Reduce::sum_library) {
    line += "; sums in the library's order: bits may differ between runs, ranks and layouts";
  }
  host_.log(LogLevel::info, line);
}

Reason Tensor::accepts(const ModelShape& model) const {
  return parallel_tensor::accepts(model, host_.facts().batch, part_);
}

std::int64_t Tensor::rows(std::int64_t tokens, Region region) const {
  return region == Region::outside && cuts(tokens) ? tokens / part_.size : tokens;
}

std::int64_t Tensor::first_row(std::int64_t tokens) const {
  return cuts(tokens) ? tokens / part_.size * part_.rank : 0;
}

/// Outside → inside in the forward pass, and the way back of a row-parallel map: everyone needs all rows.
Tensor::Border Tensor::spread(const View& x, const View& scratch, Pass pass, Stream& stream) {
  check_divided(scratch, pass);
  if (!scratch) return {x, {}};
  return {scratch, group_.start_all_gather(x.flat(), scratch.flat(), stream)};
}

/// Every rank has a part of the sum over all rows.
Tensor::Border Tensor::sum(const View& x, const View& scratch, Pass pass, Stream& stream) {
  check_divided(scratch, pass);
  if (part_.size == 1) return {x, {}};
  if (!scratch) return {x, group_.start_all_reduce(x.flat(), options_.sum, stream)};
  return {scratch, group_.start_reduce_scatter(x.flat(), scratch.flat(), options_.sum, stream)};
}

/// Gradients of norms and biases are summed over the group at the end of the step: right only if each rank saw its own
/// rows.
void Tensor::check_divided(const View& scratch, Pass pass) const {
  if (part_.sequence_parallel && pass == Pass::backward && !scratch) {
    throw ShapeError("parallel_tensor: sequence_parallel: a micro-batch whose tokens do not divide by " +
                     std::to_string(part_.size) + " cannot be trained on");
  }
}

Tensor::Border Tensor::enter(const View& x, const View& scratch, Pass pass, Stream& stream) {
  if (pass == Pass::forward) return spread(x, scratch, pass, stream);
  const Border border = sum(x, scratch, pass, stream);
  if (options_.overlap) return border;
  group_.finish(border.request, stream);
  return {border.result, {}};
}

Tensor::Border Tensor::leave(const View& x, const View& scratch, Pass pass, Stream& stream) {
  return pass == Pass::forward ? sum(x, scratch, pass, stream) : spread(x, scratch, pass, stream);
}

Request Tensor::reduce(const View& x, Reduce how, Stream& stream) {
  if (part_.size == 1) return {};
  return group_.start_all_reduce(x.flat(), how == Reduce::max ? how : options_.sum, stream);
}

}  // namespace espalier::parallel_tensor
