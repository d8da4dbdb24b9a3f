#include <algorithm>

#include "controls.hpp"
#include "espalier/testing/fused_product_suite.hpp"
#include "fused_cuda_backend.hpp"
#include "graphs.hpp"

namespace espalier::testing {

std::unique_ptr<Backend> emulated(ThreadPool&) {
  return std::make_unique<kernels_fused::cuda::FusedCudaBackend>(kernels_fused::cuda::Settings{});
}

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, MatrixSuite, ::testing::ValuesIn(kernel_cases("cuda", emulated)), case_name);

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, FusedProductSuite, ::testing::ValuesIn(kernel_cases("cuda", emulated)),
                         case_name);

}  // namespace espalier::testing

namespace espalier::kernels_fused::cuda {
namespace {

using testing::Operand;

/// Strided batches, as attention asks for them, against FP64.
TEST(CudaGemm, StridedBatches) {
  FusedCudaBackend backend({});
  Stream& stream = backend.device().lane(Lane::compute);
  const std::int64_t m = 5, n = 7, k = 3, count = 4;
  Operand a(backend, DType::f32, count * m, k, {0, 2});
  Operand b(backend, DType::f32, count * n, k);
  Operand dst(backend, DType::f32, count * m, n, {1, 1});
  a.random(1);
  b.random(2);
  dst.random(3);
  const std::vector<double> before = dst.values();
  BatchedProduct product;
  product.a = a.view().row_range(0, m);
  product.b = b.view().row_range(0, n);
  product.dst = dst.view().row_range(0, m);
  product.transpose_b = true;
  product.alpha = 0.5f;
  product.beta = 2.0f;
  product.count = count;
  product.a_stride = m * a.view().row_stride;
  product.b_stride = n * b.view().row_stride;
  product.dst_stride = m * dst.view().row_stride;
  backend.gemm().multiply(product, stream);
  backend.gemm().multiply(product, stream);
  EXPECT_EQ(backend.gemm().plans(), 1u);
  const std::vector<double> got = dst.read();
  for (std::int64_t i = 0; i < count * m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < k; ++c) sum += a(i, c) * b(i / m * n + j, c);
      const auto at = static_cast<std::size_t>(i * n + j);
      EXPECT_NEAR(got[at], 0.5 * sum + 2 * (0.5 * sum + 2 * before[at]), 1e-5);
    }
  }
}

/// Forward and backward of a linear map with GELU, and a weight gradient with its bias gradient, in one pass each.
class Fused : public ::testing::Test {
 protected:
  ~Fused() override { fake::refuse_epilogues(false); }

  static View shape(std::int64_t rows, std::int64_t cols, DType dtype = DType::bf16) {
    return View::matrix(nullptr, rows, cols, dtype);
  }
  static Matmul up(std::int64_t rows, std::int64_t ffn, DType dtype = DType::bf16) {
    Matmul args;
    args.a = shape(rows, 64, dtype);
    args.b = shape(ffn, 64, dtype);
    args.transpose_b = true;
    args.dst = args.gelu = shape(rows, ffn, dtype);
    args.bias = shape(1, ffn, dtype);
    return args;
  }
  static Matmul down_gradient(std::int64_t rows, std::int64_t ffn) {
    Matmul args;
    args.a = shape(rows, 64);
    args.b = shape(64, ffn);
    args.dst = args.gelu_src = shape(rows, ffn);
    return args;
  }
  static Matmul weight_gradient(std::int64_t rows, std::int64_t ffn) {
    Matmul args;
    args.a = shape(rows, ffn);
    args.transpose_a = true;
    args.b = shape(rows, 64);
    args.dst = shape(ffn, 64, DType::f32);
    args.sum_a = shape(1, ffn, DType::f32);
    args.accumulate = args.add_sum = true;
    return args;
  }
  std::unique_ptr<FusedCudaBackend> backend(bool epilogues = true) {
    Settings settings;
    settings.epilogues = epilogues;
    return std::make_unique<FusedCudaBackend>(settings, [this](const std::string& line) { log_.push_back(line); });
  }
  std::vector<std::string> log_;
};

TEST_F(Fused, WhatCublasLtDoesInOnePass) {
  const auto cuda = backend();
  const MatrixKernels& kernels = *cuda->kernels().matrix;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_TRUE(kernels.fuses(up(32, 256, dtype)));
  EXPECT_TRUE(kernels.fuses(down_gradient(32, 256)));
  EXPECT_TRUE(kernels.fuses(weight_gradient(32, 256)));
  EXPECT_FALSE(kernels.fuses(weight_gradient(0, 256))) << "a sum of nothing";
  EXPECT_TRUE(log_.empty());
  Matmul both = down_gradient(32, 256);
  both.bias = shape(1, 256);
  EXPECT_FALSE(kernels.fuses(both));
  Matmul working = weight_gradient(32, 256);
  working.accumulate = false;
  working.dst = shape(256, 64);
  EXPECT_FALSE(kernels.fuses(working)) << "FP32 sums beside a BF16 product";
  EXPECT_EQ(log_.size(), 2u);
}

TEST_F(Fused, LeadingDimensionsThatCublasLtRefuses) {
  const auto cuda = backend();
  const MatrixKernels& kernels = *cuda->kernels().matrix;
  EXPECT_FALSE(kernels.fuses(up(32, 252)));
  EXPECT_FALSE(kernels.fuses(down_gradient(32, 252)));
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(
      log_[0],
      "matmul [32, 64] x [64, 252], bf16 to bf16 with bias and GELU: rows before GELU do not start at multiples of "
      "8 elements: own kernel");
  Operand a(*cuda, DType::bf16, 32, 64), b(*cuda, DType::bf16, 256, 64), bias(*cuda, DType::bf16, 1, 256);
  Operand odd(*cuda, DType::bf16, 32, 256, {1, 0}), even(*cuda, DType::bf16, 32, 256);
  Matmul args = up(32, 256);
  args.a = a;
  args.b = b;
  args.bias = bias;
  args.gelu = even;
  args.dst = odd;
  EXPECT_FALSE(kernels.fuses(args)) << "the matrix before GELU starts between";
}

TEST_F(Fused, WithoutEpiloguesEachKindIsSaidOnce) {
  fake::refuse_epilogues(true);
  const auto cuda = backend();
  const MatrixKernels& kernels = *cuda->kernels().matrix;
  for (const std::int64_t rows : {32, 48, 64}) {
    EXPECT_FALSE(kernels.fuses(up(rows, 256)));
    EXPECT_FALSE(kernels.fuses(down_gradient(rows, 256)));
    EXPECT_FALSE(kernels.fuses(weight_gradient(rows, 256)));
  }
  ASSERT_EQ(log_.size(), 3u);
  EXPECT_EQ(
      log_[0],
      "matmul [32, 64] x [64, 256], bf16 to bf16 with bias and GELU: cuBLASLt has no GELU epilogue for this shape "
      "(the functionality requested is not supported): own kernel");
  EXPECT_NE(log_[2].find("cuBLASLt has no bias gradient epilogue"), std::string::npos);
}

TEST_F(Fused, CanBeSwitchedOff) {
  const auto cuda = backend(false);
  EXPECT_FALSE(cuda->kernels().matrix->fuses(up(32, 256)));
  EXPECT_FALSE(cuda->kernels().matrix->fuses(weight_gradient(32, 256)));
  EXPECT_TRUE(log_.empty());
}

class Plans : public Fused {
 protected:
  void prepare(bool timed, std::size_t memory_left = 0) {
    Settings settings;
    settings.timed_plans = timed;
    FusedCudaBackend cuda(
        settings, [this](const std::string& line) { log_.push_back(line); },
        [this](const std::string& line) { warnings_.push_back(line); });
    DeviceMemory rest;
    if (memory_left > 0) {
      std::size_t free = 0, total = 0;
      ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
      rest = cuda.device().reserve(free - memory_left, "rest");
    }
    const Matmul products[] = {up(32, 256), down_gradient(32, 256), weight_gradient(32, 256), up(32, 256)};
    const std::size_t before = used(cuda);
    cuda.prepare({0, products, nullptr});
    EXPECT_EQ(cuda.gemm().plans(), 3u);
    EXPECT_EQ(used(cuda), before + (16 << 10)) << "operands are still there";
  }
  static std::size_t used(FusedCudaBackend& cuda) {
    std::size_t bytes = 0;
    for (const MemoryUse& use : cuda.device().memory_use()) bytes += use.bytes;
    return bytes;
  }
  std::vector<std::string> warnings_;
};

TEST_F(Plans, OneLineSaysHowTheyWereChosen) {
  prepare(false);
  EXPECT_EQ(log_,
            std::vector<std::string>{"algorithms of 3 matrix products: the first that cuBLASLt's heuristic names"});
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(Plans, TimedOnesSayWhatWasWon) {
  prepare(true);
  EXPECT_EQ(log_, std::vector<std::string>{
                      "algorithms of 3 matrix products: the fastest of up to 8 each, 3 timed; one call of "
                      "each takes 1.500 ms in place of 3.000 ms"});
}

TEST_F(Plans, WithoutMemoryForOperandsNothingIsTimed) {
  prepare(true, 32 << 10);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("not timed: no memory for their operands"), std::string::npos) << warnings_[0];
  EXPECT_EQ(log_,
            std::vector<std::string>{"algorithms of 3 matrix products: the first that cuBLASLt's heuristic names"});
}

TEST_F(Plans, RealOperandsMeetWhatWasAnnounced) {
  const auto cuda = backend();
  MatrixKernels& kernels = *cuda->kernels().matrix;
  Stream& stream = cuda->device().lane(Lane::compute);
  const Matmul announced[] = {weight_gradient(32, 256)};
  cuda->prepare({0, announced, nullptr});
  Operand grad(*cuda, DType::bf16, 32, 256), odd(*cuda, DType::bf16, 32, 256, {1, 0}), src(*cuda, DType::bf16, 32, 64);
  Operand dst(*cuda, DType::f32, 256, 64), sum(*cuda, DType::f32, 1, 256), odd_sum(*cuda, DType::f32, 1, 256, {1, 0});
  Matmul args = weight_gradient(32, 256);
  args.b = src;
  args.dst = dst;
  const auto run = [&](const View& a, const View& to, bool adds) {
    args.a = a;
    args.sum_a = to;
    args.accumulate = args.add_sum = adds;
    kernels.matmul(args, stream);
    return cuda->gemm().plans();
  };
  EXPECT_EQ(run(grad, sum, true), 1u);
  EXPECT_EQ(run(grad, sum, false), 1u) << "a first micro-batch overwrites";
  EXPECT_EQ(run(grad, odd_sum, true), 1u) << "bias gradients may lie anywhere";
  EXPECT_EQ(run(odd, sum, true), 2u) << "less aligned than announced";
  cuda->device().wait(stream);
}

/// Decoding meets a shape for each number of keys.
TEST(CudaGemm, KeepsAsManyPlansAsItMay) {
  CudaDevice device(-1);
  Gemm gemm(device, {.most_plans = 8});
  DeviceMemory memory = device.reserve(1 << 16, "test");
  const auto multiply = [&](std::int64_t keys) {
    BatchedProduct product;
    product.a = View::matrix(memory.data(), 1, 8, DType::f32);
    product.b = View::matrix(memory.data() + 4096, keys, 8, DType::f32);
    product.dst = View::matrix(memory.data() + 32768, 1, keys, DType::f32);
    product.transpose_b = true;
    gemm.multiply(product, device.lane(Lane::compute));
  };
  for (std::int64_t keys = 1; keys <= 100; ++keys) {
    multiply(keys);
    multiply(1);  // in use all the time: stays
    EXPECT_LE(gemm.plans(), 8u);
  }
  const std::size_t before = gemm.plans();
  multiply(1);
  multiply(100);
  EXPECT_EQ(gemm.plans(), before) << "plans that were just used are gone";
  device.wait(device.lane(Lane::compute));
}

/// Work that is sent as graphs is compared as bytes, a plan's address among them, and new plans lie where old ones lay.
TEST(CudaGemm, APlanInTheMemoryOfAnotherIsNotTakenForIt) {
  CudaDevice device(-1);
  device.use_graphs({});
  {
    Gemm gemm(device, {.most_plans = 2});
    Stream& stream = device.lane(Lane::compute);
    constexpr std::int64_t kMost = 24;
    DeviceMemory memory = device.reserve(1 << 14, "test");
    const View a = View::matrix(memory.data(), 1, 8, DType::f32);
    const View b = View::matrix(memory.data() + 1024, kMost, 8, DType::f32);
    const View dst = View::matrix(memory.data() + 8192, 1, kMost, DType::f32);
    std::vector<float> ones(8 * kMost, 1.0f), got(kMost);
    device.copy(View::matrix(ones.data(), 1, 8, DType::f32), a, stream);
    device.copy(View::matrix(ones.data(), kMost, 8, DType::f32), b, stream);
    for (std::int64_t columns = 1; columns <= kMost; ++columns) {
      for (int time = 0; time < 3; ++time) {  // directly, captured, launched
        device.fill_zero(dst, stream);
        device.wait(stream);
        BatchedProduct product;
        product.a = a;
        product.b = b.row_range(0, columns);
        product.dst = dst.col_range(0, columns);
        product.transpose_b = true;
        for (int i = 0; i < 5; ++i) gemm.multiply(product, stream);
        device.copy(dst, View::matrix(got.data(), 1, kMost, DType::f32), stream);
        device.wait(stream);
        EXPECT_EQ(std::count(got.begin(), got.end(), 8.0f), columns) << "time " << time;
      }
    }
    EXPECT_GT(device.graphs()->counts().launched, 0u);
  }
  device.stop_graphs();
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
