#include "controls.hpp"
#include "espalier/testing/matrix_suite.hpp"
#include "fused_cuda_backend.hpp"

namespace espalier::testing {

std::unique_ptr<Backend> emulated(ThreadPool&) {
  return std::make_unique<kernels_fused::cuda::FusedCudaBackend>(kernels_fused::cuda::Settings{});
}

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, MatrixSuite, ::testing::ValuesIn(kernel_cases("cuda", emulated)), case_name);

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

}  // namespace
}  // namespace espalier::kernels_fused::cuda
