// CUDA graphs of a small training, on whichever CUDA runtime the program is linked with: the same bits as without, and
// a later step is a few launches.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fused_cuda_backend.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr std::int64_t kHeads = 2, kHeadSize = 64, kRows = 64, kCols = kHeads * kHeadSize;
constexpr int kSteps = 6;
constexpr int kMicroBatches = 2;

/// One layer with kernels and products of every kind that a micro-batch has, an event after each micro-batch as for a
/// communication, and an update whose rate changes from step to step.
class Training {
 public:
  explicit Training(bool graphs)
      : backend_([&] {
          Settings settings;
          settings.graphs = graphs;
          return settings;
        }()),
        device_(backend_.device()),
        stream_(device_.lane(Lane::compute)) {}

  std::vector<std::byte> run() {
    const float slopes[kHeads] = {0.25f, 0.0625f};
    device_.copy(View::vector(const_cast<float*>(slopes), kHeads, DType::f32), slopes_, stream_);
    set_attention();
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 == kSteps && backend_.graphs() != nullptr) before_ = backend_.graphs()->counts();
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        forward();
        backward(micro > 0);
        device_.order(stream_, device_.lane(Lane::data));
      }
      update(-0.01 / (step + 1));
      device_.wait(stream_);
    }
    std::vector<std::byte> bytes(master_.bytes());
    device_.copy(master_, View::matrix(bytes.data(), kCols, kCols, DType::f32), stream_);
    device_.wait(stream_);
    return bytes;
  }

  /// Of the last step.
  Graphs::Counts last() const {
    const Graphs::Counts now = backend_.graphs()->counts();
    return {now.captured - before_.captured, now.dropped - before_.dropped,
            now.launched - before_.launched, now.launched_pieces - before_.launched_pieces,
            now.direct - before_.direct,     now.direct_pieces - before_.direct_pieces};
  }
  const Graphs* graphs() const { return backend_.graphs(); }

 private:
  View matrix(std::int64_t rows, std::int64_t cols, DType dtype = DType::bf16) {
    memory_.push_back(device_.reserve(static_cast<std::size_t>(rows * cols) * size_of(dtype), "test"));
    const View view = View::matrix(memory_.back().data(), rows, cols, dtype);
    if (dtype != DType::i32) {
      kernels_.random->normal(view.flat(), {1, static_cast<std::uint32_t>(memory_.size())}, 0, 0.0, 0.3, stream_);
    }
    return view;
  }

  void set_attention() {
    const auto part = [](const View& view, std::int64_t index) {
      return AttentionOperand{view.at(0, index * kHeadSize), kRows * 3 * kCols, 3 * kCols, 3 * kHeadSize};
    };
    attention_.q = part(qkv_, 0);
    attention_.k = part(qkv_, 1);
    attention_.v = part(qkv_, 2);
    attention_.out = {context_.data, kRows * kCols, kCols, kHeadSize};
    attention_.dtype = DType::bf16;
    attention_.batch = 1;
    attention_.heads = kHeads;
    attention_.head_dim = kHeadSize;
    attention_.queries = attention_.keys = kRows;
    attention_.scale = 0.125f;
    attention_.slopes = slopes_.as<float>();
    attention_.saved =
        matrix(1, static_cast<std::int64_t>(kernels_.attention->saved_bytes(attention_)) / 4, DType::f32);
    gradient_ = {attention_,
                 {grad_context_.data, kRows * kCols, kCols, kHeadSize},
                 part(grad_qkv_, 0),
                 part(grad_qkv_, 1),
                 part(grad_qkv_, 2)};
  }

  void multiply(const View& a, const View& b, const View& dst, bool transpose_a, bool transpose_b,
                bool accumulate = false, const View& bias = {}) {
    kernels_.matrix->matmul({a, b, dst, transpose_a, transpose_b, accumulate, bias, 0}, stream_);
  }

  void forward() {
    kernels_.norm->forward({x_, scale_, bias_, y_, mean_, rstd_, 1e-5f}, stream_);
    multiply(y_, weight_qkv_, qkv_, false, true);
    kernels_.attention->forward(attention_, stream_);
    multiply(context_, weight_, z_, false, true, false, bias_);
    kernels_.elementwise->bias_gelu(z_, bias_, y_, stream_);
    Dropout dropout;  // of probability 0
    dropout.seq = kRows;
    kernels_.elementwise->bias_dropout_add(y_, bias_, x_, dropout, z_, stream_);
  }

  void backward(bool accumulate) {
    kernels_.matrix->column_sum(z_, sum_, accumulate, stream_);
    multiply(z_, context_, grad_, true, false, accumulate);
    multiply(z_, weight_, grad_context_, false, false);
    device_.fill_zero(grad_qkv_, stream_);
    kernels_.attention->backward(gradient_, stream_);
    device_.copy(View{grad_qkv_.data, kRows, kCols, 3 * kCols, DType::bf16}, y_, stream_);
    kernels_.norm->backward({y_, x_, scale_, mean_, rstd_, z_, z_, grad_scale_, sum_, true}, stream_);
  }

  void update(double rate) {
    kernels_.update->axpy(rate, grad_.flat(), master_.flat(), weight_.flat(), nullptr, nullptr, stream_);
    kernels_.update->axpy(rate, sum_, master_.row_range(0, 1).flat(), weight_.row_range(0, 1).flat(), nullptr, nullptr,
                          stream_);
  }

  FusedCudaBackend backend_;
  Device& device_;
  Stream& stream_;
  const KernelSet& kernels_ = backend_.kernels();
  Graphs::Counts before_;
  std::vector<DeviceMemory> memory_;
  View x_ = matrix(kRows, kCols), y_ = matrix(kRows, kCols), z_ = matrix(kRows, kCols), context_ = matrix(kRows, kCols);
  View grad_context_ = matrix(kRows, kCols), qkv_ = matrix(kRows, 3 * kCols), grad_qkv_ = matrix(kRows, 3 * kCols);
  View weight_qkv_ = matrix(3 * kCols, kCols), weight_ = matrix(kCols, kCols), scale_ = matrix(1, kCols);
  View bias_ = matrix(1, kCols), master_ = matrix(kCols, kCols, DType::f32), grad_ = matrix(kCols, kCols, DType::f32);
  View sum_ = matrix(1, kCols, DType::f32), grad_scale_ = matrix(1, kCols, DType::f32);
  View mean_ = matrix(1, kRows, DType::f32), rstd_ = matrix(1, kRows, DType::f32),
       slopes_ = matrix(1, kHeads, DType::f32);
  Attention attention_;
  AttentionGradient gradient_;
};

TEST(GraphChecks, SameBitsAndALaterStepIsAFewLaunches) {
  const std::vector<std::byte> plain = Training(false).run();
  Training training(true);
  EXPECT_TRUE(training.run() == plain);
  const Graphs::Counts last = training.last();
  EXPECT_EQ(last.captured, 0u);
  EXPECT_EQ(last.launched, static_cast<std::uint64_t>(kMicroBatches)) << "a graph for each micro-batch";
  EXPECT_GE(last.launched_pieces, 13u * kMicroBatches);
  EXPECT_EQ(last.direct_pieces, 2u) << "the update's";
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
