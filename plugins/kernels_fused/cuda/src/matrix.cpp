#include "matrix.hpp"

#include "column_sum.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr std::size_t kBorder = 256;  ///< parts of the scratch start at multiples of it

std::size_t padded(std::size_t bytes) { return (bytes + kBorder - 1) / kBorder * kBorder; }

BatchedProduct product_of(const Matmul& args) {
  BatchedProduct product;
  product.a = args.a;
  product.b = args.b;
  product.dst = args.dst;
  product.transpose_a = args.transpose_a;
  product.transpose_b = args.transpose_b;
  product.beta = args.accumulate ? 1.0f : 0.0f;
  return product;
}

Extras extras_of(const Matmul& args) { return {args.bias, args.gelu, args.gelu_src, args.sum_a}; }

bool aligned(const View& view) { return reinterpret_cast<std::uintptr_t>(view.data) % ProductKey::kAlignment == 0; }

std::size_t bias_bytes(const Matmul& args) {
  return present(args.bias) ? padded(static_cast<std::size_t>(args.dst.cols) * size_of(args.dst.dtype)) : 0;
}
std::size_t sum_bytes(const Matmul& args) {
  return present(args.sum_a) ? padded(static_cast<std::size_t>(args.dst.rows) * sizeof(float)) : 0;
}

}  // namespace

Reason CudaMatrix::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused_cuda: matrices of f32, bf16 or f16, not of " + std::string(name_of(working));
}

std::size_t CudaMatrix::workspace(const Matmul& shape) const { return bias_bytes(shape) + sum_bytes(shape); }

bool CudaMatrix::fuses(const Matmul& shape) const {
  return epilogues_ && gemm_.fuses(product_of(shape), extras_of(shape));
}

ProductKey CudaMatrix::key_of(const Matmul& shape) { return ProductKey::of(product_of(shape), extras_of(shape)); }

void CudaMatrix::matmul(const Matmul& args, Stream& stream) {
  ESPALIER_ASSERT(!args.accumulate || args.dst.dtype == DType::f32);
  if (args.dst.empty()) return;
  if (args.a.empty()) {  // sums of nothing
    ESPALIER_ASSERT(!present(args.bias) && !present(args.gelu) && !present(args.gelu_src) && !present(args.sum_a));
    if (!args.accumulate) device_.fill_zero(args.dst, stream);
    return;
  }
  Extras extras = extras_of(args);
  // cuBLASLt adds a bias of the target's type only, and reads 16 bytes at a time.
  const bool copies = present(args.bias) && (args.bias.dtype != args.dst.dtype || !aligned(args.bias));
  const bool adds = present(args.sum_a) && (args.add_sum || !aligned(args.sum_a));
  if (copies || adds) {
    std::byte* const scratch = scratch_.bytes(workspace(args), stream);
    if (copies) {
      const std::int64_t n = args.dst.cols;
      extras.bias = View::vector(scratch, n, args.dst.dtype);
      convert(View::vector(args.bias.data, n, args.bias.dtype), extras.bias, stream);
    }
    if (adds) extras.sum_a = View::vector(scratch + bias_bytes(args), args.dst.rows, DType::f32);
  }
  gemm_.multiply(product_of(args), extras, stream);
  if (adds) add_vector(extras.sum_a, args.sum_a, args.add_sum, stream);
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

std::size_t CudaMatrix::sum_workspace(std::int64_t rows, std::int64_t columns) const {
  return cuda::sum_workspace(rows, columns);
}

}  // namespace espalier::kernels_fused::cuda
