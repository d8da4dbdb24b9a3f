#pragma once

#include <cstdint>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/tensor.hpp"
#include "espalier/threads.hpp"
#include "model/arena.hpp"
#include "model/choices.hpp"

namespace espalier::app {

/// What the layers work with. All pointers outlive the model; the dry walk puts stand-ins in their place.
struct ModelContext {
  const ModelShape* shape = nullptr;
  DType working = DType::f32;
  Device* device = nullptr;
  KernelSet kernels;
  Stream* stream = nullptr;
  TensorParallel* tensor = nullptr;
  DataParallel* data = nullptr;
  Arena* arena = nullptr;
  const float* slopes = nullptr;  ///< device [own heads], null with learned positions
  std::int64_t own_heads = 0;
  std::int64_t first_head = 0;
  std::int64_t own_ffn = 0;
  std::uint64_t seed = 0;
  Recompute recompute = Recompute::none;
  std::int64_t logits_bytes = 0;  ///< aim for the FP32 logits that exist at once; the head works in pieces of that size

  std::int64_t own_hidden() const { return own_heads * shape->head_dim(); }
  View weight(int parameter) const { return data->weight(parameter); }
  /// Of what a border of a sharded region sums.
  DType partial() const { return tensor->partial_dtype(working); }
};

/// Rows of a micro-batch by region, and what dropout needs to know of it.
struct Tokens {
  std::int64_t samples = 0;
  std::int64_t seq = 0;
  std::int64_t outside = 0;    ///< rows of the residual stream
  std::int64_t inside = 0;     ///< rows inside a sharded region
  std::int64_t first_row = 0;  ///< first flattened token of the outside rows
  std::int64_t first_sample = 0;
  bool training = true;  ///< dropout is on

  std::int64_t count() const { return samples * seq; }
};

/// A border of a sharded region, finished before it returns: `enter` before a column-parallel map, `leave` after a
/// row-parallel one. What is summed comes in context.partial(); results have the working type. Holds the scratch for
/// the result where the row counts of the regions or the types differ, so the view it returns lives as long as it does.
class Border {
 public:
  Border(const ModelContext& context, const Tokens& tokens)
      : context_(context), tokens_(tokens), scratch_(*context.arena), rounded_(*context.arena) {}
  /// Forward: outside → inside; backward: inside → outside.
  View enter(const View& x, Pass pass);
  /// The same, with work that neither needs the result nor touches x done while it is on its way.
  View enter(const View& x, Pass pass, FunctionRef<void()> meanwhile);
  /// Forward: inside → outside; backward: outside → inside.
  View leave(const View& x, Pass pass);

 private:
  View scratch(const View& x, Region to);
  View rounded(const View& sum);

  const ModelContext& context_;
  const Tokens& tokens_;
  Temporary scratch_;
  Temporary rounded_;
};

/// TensorParallel::leave, finished at once, with scratch of the caller's: empty where the row counts of the regions are
/// equal.
View leave_into(const ModelContext& context, const View& x, const View& scratch, Pass pass);

/// Places of dropout in a layer; with the layer's number they make the generator's key.
enum class DropoutSite : std::uint8_t { embedding, attention, attention_out, mlp_out };

/// Dropout of [outside rows, hidden] after a layer, with p = 0 outside of training.
Dropout hidden_dropout(const ModelContext& context, const Tokens& tokens, int layer, DropoutSite site);
/// Dropout of attention probabilities.
Dropout attention_dropout(const ModelContext& context, const Tokens& tokens, int layer);

/// dst = src · weightᵀ [+ bias]: a linear map whose weight is [out, in]. An empty bias adds none.
void linear(const ModelContext& context, const View& src, int weight, const View& bias, const View& dst);
/// The same, and activated = gelu(src · weightᵀ + bias) in the same pass (MatrixKernels::fuses).
void linear_gelu(const ModelContext& context, const View& src, int weight, const View& bias, const View& dst,
                 const View& activated);
/// grad_src = grad_dst · weight, where gelu_src is not empty times gelu'(gelu_src).
void linear_backward_input(const ModelContext& context, const View& grad_dst, int weight, const View& grad_src,
                           const View& gelu_src = {});
/// Whether the provider computes gelu(x · upᵀ + bias), and grad · down · gelu' of it, each in one pass; `rows` of x.
bool fuses_gelu(const ModelContext& context, std::int64_t rows, int up, int up_bias, int down);
/// Weight gradient = grad_dstᵀ · src, to where the data strategy wants it.
/// @param bias  not kNoBias: the bias gradient too, in the same pass where the provider does that.
void linear_backward_weight(const ModelContext& context, const View& grad_dst, const View& src, int weight, int bias,
                            int micro_batch);
inline constexpr int kNoBias = -1;
/// Bias gradient = column sums of grad_dst.
void bias_backward(const ModelContext& context, const View& grad_dst, int bias, int micro_batch);
/// LayerNorm; mean and rstd may be empty where no backward follows.
void norm_forward(const ModelContext& context, const View& src, int weight, int bias, const View& mean,
                  const View& rstd, const View& dst);
/// LayerNorm backward: grad_src = gradient + residual (empty: none); weight and bias gradients go where the strategy
/// wants them.
void norm_backward(const ModelContext& context, const View& grad_dst, const View& src, int weight, int bias,
                   const View& mean, const View& rstd, const View& residual, const View& grad_src, int micro_batch);

/// Which half of a layer's backward sums the bias gradients of its column-parallel maps. In the weight half they are part of
/// the product, but its vectors are then complete only with it, so a split backward needs the input half.
enum class BiasSums : std::uint8_t { input_half, weight_half };

/// Backward of `leave, add bias, drop` at the end of a row-parallel map: the bias gradient, and out_grad [inside,
/// hidden], the gradient of the map's product. out_grad is grad_dst itself when nothing is dropped and the regions have
/// equal rows.
void dropped_gradient(const ModelContext& context, const Tokens& tokens, const Dropout& dropout, int bias,
                      const View& grad_dst, const View& out_grad, int micro_batch);

/// A row-parallel map at the end of half a block: dst [outside, hidden] = residual + dropout(sum over the tensor group
/// of src · weightᵀ + bias).
void row_parallel_residual(const ModelContext& context, const Tokens& tokens, const View& src, int weight, int bias,
                           const View& residual, const Dropout& dropout, const View& dst);
/// Backward of a norm and the column-parallel map behind it: grad_src [outside, hidden] = residual + the norm's
/// gradient of the sum over the tensor group of grad_dst · weight. `meanwhile` runs while that sum is on its way.
void column_parallel_backward_input(const ModelContext& context, const Tokens& tokens, const View& grad_dst, int weight,
                                    const View& src, int norm_weight, int norm_bias, const View& mean, const View& rstd,
                                    const View& residual, const View& grad_src, int micro_batch,
                                    FunctionRef<void()> meanwhile);

/// Cuts one range of memory into aligned views. A first pass without memory (null) gives the size.
class Carve {
 public:
  explicit Carve(std::byte* base)
      : base_(base == nullptr ? Arena::kDryAddress : reinterpret_cast<std::uintptr_t>(base)) {}
  View matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
    const std::uintptr_t here = base_ + bytes_;
    bytes_ += aligned(static_cast<std::size_t>(rows * cols) * size_of(dtype));
    return View::matrix(reinterpret_cast<void*>(here), rows, cols, dtype);
  }
  View vector(std::int64_t n, DType dtype) { return matrix(1, n, dtype); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::uintptr_t base_;
  std::size_t bytes_ = 0;
};

}  // namespace espalier::app
