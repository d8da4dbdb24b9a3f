#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "espalier/random.hpp"
#include "fused_backend.hpp"

/// One call of every kernel whose work is shared between threads, at sizes of several blocks; what they wrote can be
/// compared.
namespace espalier::kernels_fused {

class Workload {
 public:
  Workload(int threads, DType dtype) : pool_(make_thread_pool(threads)), backend_("auto", *pool_), dtype_(dtype) {
    a_ = working(kTokens, kHidden);
    b_ = working(kHidden, kHidden);
    bias_ = working(1, kHidden);
    product_ = working(kTokens, kHidden);
    gradient_ = make(kHidden, kHidden, DType::f32);
    qkv_ = working(kTokens, 3 * kHidden);
    grad_qkv_ = working(kTokens, 3 * kHidden);
    context_ = working(kTokens, kHidden);
    normal_ = working(kTokens, kHidden);
    hidden_ = working(kTokens, kHidden);
    sums_ = make(2, kHidden, DType::f32);
    mean_ = make(1, kTokens, DType::f32);
    rstd_ = make(1, kTokens, DType::f32);
    logits_ = make(kTokens, kHidden, DType::f32);
    losses_ = make(4, kTokens, DType::f32);
    targets_ = make(1, kTokens, DType::i32);
    master_ = make(1, kElements, DType::f32);
    moments_ = make(2, kElements, DType::f32);
    square_ = make(1, 1, DType::f64);
    saved_ = make(1, static_cast<std::int64_t>(backend_.kernels().attention->saved_bytes(attention())), DType::u8);
  }

  /// Every kernel once.
  void run() {
    const KernelSet& kernels = backend_.kernels();
    Stream& stream = backend_.device().lane(Lane::compute);
    kernels.matrix->matmul({a_, b_, product_, false, true, false, bias_, 0, {}, {}, {}}, stream);
    kernels.matrix->matmul({a_, product_, gradient_, true, false, true, {}, 0, {}, {}, {}}, stream);
    kernels.matrix->column_sum(product_, sums_.row_range(0, 1), true, stream);
    kernels.attention->forward(attention(), stream);
    AttentionGradient backward;
    backward.forward = attention();
    backward.grad_out = {product_.data, kSeq * kHidden, kHidden, kHeadDim};
    backward.grad_q = part(grad_qkv_, 0);
    backward.grad_k = part(grad_qkv_, 1);
    backward.grad_v = part(grad_qkv_, 2);
    kernels.attention->backward(backward, stream);
    kernels.norm->forward({a_, bias_, bias_, normal_, mean_, rstd_, 1e-5f}, stream);
    kernels.norm->backward(
        {normal_, a_, bias_, mean_, rstd_, hidden_, product_, sums_.row_range(0, 1), sums_.row_range(1, 2), true},
        stream);
    kernels.elementwise->bias_gelu(a_, bias_, hidden_, stream);
    kernels.elementwise->bias_gelu_backward(hidden_, a_, bias_, hidden_, stream);
    Dropout dropout;
    dropout.p = 0.1f;
    dropout.key = {1, 2};
    dropout.seq = kSeq;
    kernels.elementwise->bias_dropout_add(hidden_, bias_, a_, dropout, hidden_, stream);
    kernels.elementwise->dropout_backward(hidden_, dropout, hidden_, stream);
    kernels.elementwise->add(hidden_, a_, hidden_, stream);
    kernels.elementwise->scale(hidden_, 0.5f, hidden_, stream);
    kernels.elementwise->embedding_backward(targets_, hidden_, 0, gradient_, stream);
    kernels.elementwise->add(hidden_, {}, logits_, stream);
    const auto vector = [&](std::int64_t i) { return losses_.row_range(i, i + 1); };
    kernels.loss->row_max(logits_, kHidden - 3, vector(0), stream);
    kernels.loss->exp_sum(logits_, kHidden - 3, vector(0), targets_, 0, vector(1), vector(2), stream);
    kernels.loss->gradient(logits_, kHidden - 3, vector(0), vector(1), vector(2), targets_, 0, 0.5f, vector(3), logits_,
                           stream);
    AdamW step;
    step.gradient = step.master = master_;
    step.moment1 = moments_.row_range(0, 1);
    step.moment2 = moments_.row_range(1, 2);
    step.lr = 1e-3;
    kernels.update->adamw(step, stream);
    kernels.update->gemm(gradient_, true, gradient_, false, 0.5, 0.25, gradient_, stream);
    kernels.update->squared_sum(master_, square_.as<double>(), stream);
  }

  /// Everything that run() wrote.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const DeviceMemory& block : memory_) all.insert(all.end(), block.data(), block.data() + block.bytes());
    return all;
  }

 private:
  static constexpr std::int64_t kBatch = 3, kSeq = 200, kTokens = kBatch * kSeq, kHidden = 272, kHeads = 4;
  static constexpr std::int64_t kHeadDim = kHidden / kHeads, kElements = 200000;

  View working(std::int64_t rows, std::int64_t cols) { return make(rows, cols, dtype_); }

  View make(std::int64_t rows, std::int64_t cols, DType dtype) {
    const View view = View::matrix(
        memory_.emplace_back(backend_.device().reserve(static_cast<std::size_t>(rows * cols) * size_of(dtype), "test"))
            .data(),
        rows, cols, dtype);
    const auto number = [&](std::int64_t i) { return philox({7, 9}, {static_cast<std::uint32_t>(i), 0, 0, 0})[0]; };
    with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        view.as<T>()[i] = from_float<T>(static_cast<float>(number(i)) * 0x1p-32f);
      }
    });
    for (std::int64_t i = 0; dtype == DType::i32 && i < cols; ++i) {
      view.as<std::int32_t>()[i] = static_cast<std::int32_t>(number(i) % kHidden);
    }
    return view;
  }

  AttentionOperand part(const View& view, std::int64_t index) const {
    return {view.at(0, index * kHeadDim), kSeq * 3 * kHidden, 3 * kHidden, 3 * kHeadDim};
  }

  Attention attention() const {
    static constexpr float kSlopes[kHeads] = {0.5f, 0.25f, 0.125f, 0.0625f};
    Attention args;
    args.q = part(qkv_, 0);
    args.k = part(qkv_, 1);
    args.v = part(qkv_, 2);
    args.out = {context_.data, kSeq * kHidden, kHidden, kHeadDim};
    args.dtype = dtype_;
    args.batch = kBatch;
    args.heads = kHeads;
    args.head_dim = kHeadDim;
    args.queries = args.keys = kSeq;
    args.scale = 0.1f;
    args.slopes = kSlopes;
    args.dropout.p = 0.1f;
    args.dropout.key = {3, 4};
    args.saved = saved_;
    return args;
  }

  std::unique_ptr<ThreadPool> pool_;
  FusedBackend backend_;
  DType dtype_;
  std::vector<DeviceMemory> memory_;
  View a_, b_, bias_, product_, gradient_, qkv_, grad_qkv_, context_, normal_, hidden_, sums_, mean_, rstd_, logits_;
  View losses_, targets_, master_, moments_, square_, saved_;
};

}  // namespace espalier::kernels_fused
