#include "matrix.hpp"

#include "column_sum.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

Reason CudaMatrix::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused_cuda: matrices of f32, bf16 or f16, not of " + std::string(name_of(working));
}

std::size_t CudaMatrix::workspace(const Matmul& shape) const {
  return shape.bias ? static_cast<std::size_t>(shape.dst.cols) * sizeof(float) : 0;
}

void CudaMatrix::matmul(const Matmul& args, Stream& stream) {
  ESPALIER_ASSERT(!args.accumulate || args.dst.dtype == DType::f32);
  if (args.dst.empty()) return;
  if (args.a.empty()) {  // sums of nothing
    ESPALIER_ASSERT(!args.bias);
    if (!args.accumulate) device_.fill_zero(args.dst, stream);
    return;
  }
  BatchedProduct product;
  product.a = args.a;
  product.b = args.b;
  product.dst = args.dst;
  product.transpose_a = args.transpose_a;
  product.transpose_b = args.transpose_b;
  product.beta = args.accumulate ? 1.0f : 0.0f;
  gemm_.multiply(product, args.bias ? aligned_bias(args.bias, args.dst.dtype, stream) : View{}, stream);
}

/// cuBLASLt adds a bias of the target's type only, and reads 16 bytes at a time.
View CudaMatrix::aligned_bias(const View& bias, DType dtype, Stream& stream) {
  if (bias.dtype == dtype && reinterpret_cast<std::uintptr_t>(bias.data) % 16 == 0) return bias;
  const std::int64_t n = bias.elements();
  const View copy = View::vector(scratch_.bytes(static_cast<std::size_t>(n) * size_of(dtype), stream), n, dtype);
  convert(View::vector(bias.data, n, bias.dtype), copy, stream);
  return copy;
}

std::size_t CudaMatrix::sum_workspace(std::int64_t rows, std::int64_t columns) const {
  return cuda::sum_workspace(rows, columns);
}

void CudaMatrix::column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) {
  ESPALIER_ASSERT(dst.dtype == DType::f32 && dst.elements() == src.cols);
  if (dst.elements() == 0) return;
  if (src.rows == 0) {
    if (!accumulate) device_.fill_zero(dst, stream);
    return;
  }
  sum_columns(src, dst, accumulate, scratch_, stream);
}

}  // namespace espalier::kernels_fused::cuda
