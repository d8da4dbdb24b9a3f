#include "product_plan.hpp"

#include <memory>

#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      ESPALIER_ASSERT(!"a matrix of another type than f32, bf16 and f16");
      return CUDA_R_32F;
  }
}

/// Largest power of two up to 16 that divides the address.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | ProductKey::kAlignment;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

std::int64_t stride_of(const View& view) { return view.rows > 1 ? view.row_stride : view.cols; }

/// An address with exactly the alignment that the heuristic may count on.
void* somewhere(std::uint32_t alignment) { return reinterpret_cast<void*>(std::uintptr_t{4096} + alignment); }

std::uint32_t epilogue_of(std::uint32_t extras) {
  switch (extras) {
    case 0:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case ProductKey::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case ProductKey::kGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case ProductKey::kGelu | ProductKey::kBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case ProductKey::kGeluSource:
      return CUBLASLT_EPILOGUE_DGELU;
    case ProductKey::kSum:
      return CUBLASLT_EPILOGUE_BGRADB;
    default:
      ESPALIER_ASSERT(!"epilogues that cuBLASLt cannot join");
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

}  // namespace

void check_blas(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError("cuda: " + what + ": " + cublasLtGetStatusString(status) + " (cuBLASLt status " +
                      std::to_string(static_cast<int>(status)) + ")");
  }
}

ProductKey ProductKey::of(const BatchedProduct& p, const Extras& extras) {
  const bool gelu = present(extras.gelu), backward = present(extras.gelu_src);
  const View& target = gelu ? extras.gelu : p.dst;
  const View auxiliary = gelu ? p.dst : extras.gelu_src;
  const std::uint32_t does = (present(extras.bias) ? kBias : 0u) | (gelu ? kGelu : 0u) | (backward ? kGeluSource : 0u) |
                             (present(extras.sum_a) ? kSum : 0u);
  const auto code = static_cast<std::int64_t>(p.a.dtype) | static_cast<std::int64_t>(p.dst.dtype) << 4 |
                    std::int64_t{p.transpose_a} << 8 | std::int64_t{p.transpose_b} << 9 | std::int64_t{does} << 10;
  const auto alignment = std::int64_t{alignment_of(p.a.data)} | std::int64_t{alignment_of(p.b.data)} << 8 |
                         std::int64_t{alignment_of(target.data)} << 16 |
                         std::int64_t{alignment_of(auxiliary.data)} << 24;
  const std::int64_t k = p.transpose_a ? p.a.rows : p.a.cols;
  return {{code, alignment, p.dst.rows, p.dst.cols, k, stride_of(p.a), stride_of(p.b), stride_of(target), p.count,
           p.count > 1 ? p.a_stride : 0, p.count > 1 ? p.b_stride : 0, p.count > 1 ? p.dst_stride : 0,
           gelu || backward ? stride_of(auxiliary) : 0}};
}

std::string ProductKey::text() const {
  const std::uint32_t does = extras();
  return "matmul [" + std::to_string(m()) + ", " + std::to_string(k()) + "] x [" + std::to_string(k()) + ", " +
         std::to_string(n()) + "]" + (count() > 1 ? " x " + std::to_string(count()) : "") + ", " +
         std::string(name_of(source())) + " to " + std::string(name_of(target())) +
         (does == 0 ? "" : " with " + extras_text());
}

std::string ProductKey::extras_text() const {
  switch (extras()) {
    case kBias:
      return "bias";
    case kGelu:
      return "GELU";
    case kGelu | kBias:
      return "bias and GELU";
    case kGeluSource:
      return "the gradient of GELU";
    default:
      return "a bias gradient";
  }
}

std::size_t ProductKey::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over words
  for (const std::int64_t number : numbers) hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
  return static_cast<std::size_t>(hash ^ hash >> 29);
}

ProductPlan::ProductPlan(const ProductKey& product, cublasComputeType_t f32_compute)
    : key(product), text(product.text()) {
  try {
    check_blas(
        cublasLtMatmulDescCreate(&operation, key.source() == DType::f32 ? f32_compute : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        text);
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b() ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a() ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_extras();
    layout(a, key.source(), key.transpose_a() ? key.k() : key.m(), key.transpose_a() ? key.m() : key.k(), 0);
    layout(b, key.source(), key.transpose_b() ? key.n() : key.k(), key.transpose_b() ? key.k() : key.n(), 1);
    layout(dst, key.target(), key.m(), key.n(), 2);
  } catch (...) {
    destroy();
    throw;
  }
}

ProductPlan::~ProductPlan() { destroy(); }

void ProductPlan::destroy() {
  if (dst != nullptr) cublasLtMatrixLayoutDestroy(dst);
  if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
  if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
  if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
}

/// The heuristic takes alignments from the pointers, so they point somewhere before they point to operands.
void ProductPlan::set_extras() {
  const std::uint32_t does = key.extras();
  if (does == 0) return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(does));
  if ((does & (ProductKey::kBias | ProductKey::kSum)) != 0) {
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(key.target())));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(ProductKey::kAlignment));
  }
  if ((does & (ProductKey::kGelu | ProductKey::kGeluSource)) != 0) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, static_cast<std::int32_t>(type_of(key.target())));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.auxiliary_stride());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, somewhere(key.alignment(3)));
  }
}

void ProductPlan::point(void* vector, void* auxiliary) {
  const std::uint32_t does = key.extras();
  if ((does & (ProductKey::kBias | ProductKey::kSum)) != 0) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if ((does & (ProductKey::kGelu | ProductKey::kGeluSource)) != 0) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary);
  }
}

void ProductPlan::layout(cublasLtMatrixLayout_t& to, DType type, std::int64_t rows, std::int64_t columns, int operand) {
  // Their rows are our columns.
  check_blas(cublasLtMatrixLayoutCreate(&to, type_of(type), static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), key.row_stride(operand)),
             text);
  const auto count = static_cast<std::int32_t>(key.count());
  const std::int64_t stride = key.batch_stride(operand);
  check_blas(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), text);
  check_blas(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
             text);
}

std::vector<cublasLtMatmulAlgo_t> ProductPlan::candidates(cublasLtHandle_t handle, std::size_t workspace, int most,
                                                          cublasStatus_t& status) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), text);
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, void (*)(cublasLtMatmulPreference_t)> owner(
      preference, [](cublasLtMatmulPreference_t one) { cublasLtMatmulPreferenceDestroy(one); });
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), text);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment(2));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment(2));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  status = cublasLtMatmulAlgoGetHeuristic(handle, operation, b, a, dst, dst, preference, most, results.data(), &count);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  if (algorithms.empty()) status = CUBLAS_STATUS_NOT_SUPPORTED;
  return algorithms;
}

bool ProductPlan::takes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate, std::size_t workspace) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, operation, b, a, dst, dst, &candidate, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace;
}

}  // namespace espalier::kernels_fused::cuda
