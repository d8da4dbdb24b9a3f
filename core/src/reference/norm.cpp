#include <cmath>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

template <class T>
void forward_row(const LayerNorm& args, std::int64_t row) {
  const std::int64_t n = args.src.cols;
  const T* src = args.src.row<T>(row);
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias.as<T>();
  T* dst = args.dst.row<T>(row);
  const auto count = static_cast<float>(n);
  const float mean = sum(n, [&](std::int64_t c) { return to_float(src[c]); }) / count;
  // The second pass over the row: E[x²] − mean² would cancel where the mean is large.
  const float variance = sum(n,
                             [&](std::int64_t c) {
                               const float centred = to_float(src[c]) - mean;
                               return centred * centred;
                             }) /
                         count;
  const float rstd = 1.0f / std::sqrt(variance + args.eps);
  for (std::int64_t c = 0; c < n; ++c) {
    dst[c] = from_float<T>((to_float(src[c]) - mean) * rstd * to_float(weight[c]) + to_float(bias[c]));
  }
  if (present(args.mean)) args.mean.as<float>()[row] = mean;
  if (present(args.rstd)) args.rstd.as<float>()[row] = rstd;
}

template <class T>
void weight_columns(const LayerNormGradient& args, std::int64_t begin, std::int64_t end) {
  float weight_sums[kColumnBlock] = {};
  float bias_sums[kColumnBlock] = {};
  for (std::int64_t r = 0; r < args.src.rows; ++r) {
    const T* src = args.src.row<T>(r);
    const T* grad = args.grad_dst.row<T>(r);
    const float mean = args.mean.as<float>()[r];
    const float rstd = args.rstd.as<float>()[r];
    for (std::int64_t c = begin; c < end; ++c) {
      weight_sums[c - begin] += to_float(grad[c]) * ((to_float(src[c]) - mean) * rstd);
      bias_sums[c - begin] += to_float(grad[c]);
    }
  }
  float* grad_weight = args.grad_weight.as<float>();
  float* grad_bias = args.grad_bias.as<float>();
  for (std::int64_t c = begin; c < end; ++c) {
    grad_weight[c] = (args.accumulate ? grad_weight[c] : 0.0f) + weight_sums[c - begin];
    grad_bias[c] = (args.accumulate ? grad_bias[c] : 0.0f) + bias_sums[c - begin];
  }
}

/// grad_src = rstd · (g − mean(g) − x̂ · mean(g · x̂)) with g = grad_dst · weight and x̂ the normalised row.
template <class T>
void backward_row(const LayerNormGradient& args, std::int64_t row) {
  const std::int64_t n = args.src.cols;
  const T* src = args.src.row<T>(row);
  const T* grad = args.grad_dst.row<T>(row);
  const T* weight = args.weight.as<T>();
  const T* residual = present(args.residual) ? args.residual.row<T>(row) : nullptr;
  T* out = args.grad_src.row<T>(row);
  const float mean = args.mean.as<float>()[row];
  const float rstd = args.rstd.as<float>()[row];
  const auto scaled = [&](std::int64_t c) { return to_float(grad[c]) * to_float(weight[c]); };
  const auto normal = [&](std::int64_t c) { return (to_float(src[c]) - mean) * rstd; };
  const auto count = static_cast<float>(n);
  const float mean_gradient = sum(n, scaled) / count;
  const float mean_product = sum(n, [&](std::int64_t c) { return scaled(c) * normal(c); }) / count;
  for (std::int64_t c = 0; c < n; ++c) {
    const float gradient = rstd * (scaled(c) - mean_gradient - normal(c) * mean_product);
    out[c] = from_float<T>(residual != nullptr ? gradient + to_float(residual[c]) : gradient);
  }
}

class ReferenceNorm final : public NormKernels {
 public:
  explicit ReferenceNorm(ThreadPool& pool) : pool_(pool) {}

  Reason supports(DType working, std::int64_t) const override { return needs_float(working); }
  std::size_t workspace(std::int64_t, std::int64_t) const override { return 0; }

  void forward(const LayerNorm& args, Stream&) override {
    with_type(args.src.dtype, [&](auto type) {
      for_rows(pool_, args.src.rows, [&](std::int64_t row) { forward_row<decltype(type)>(args, row); });
    });
  }

  void backward(const LayerNormGradient& args, Stream&) override {
    with_type(args.src.dtype, [&](auto type) {
      using T = decltype(type);
      // First the sums over rows: grad_src may overwrite grad_dst.
      for_blocks(pool_, args.src.cols, kColumnBlock,
                 [&](std::int64_t begin, std::int64_t end) { weight_columns<T>(args, begin, end); });
      for_rows(pool_, args.src.rows, [&](std::int64_t row) { backward_row<T>(args, row); });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(ThreadPool& pool) { return std::make_unique<ReferenceNorm>(pool); }

}  // namespace espalier::reference
