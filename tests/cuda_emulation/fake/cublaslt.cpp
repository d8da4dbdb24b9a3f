// cuBLASLt as far as the plugin uses it: plain loops over column-major matrices, FP32 sums in ascending order.
// Everything else is refused with CUBLAS_STATUS_NOT_SUPPORTED, and what would be undefined on a device ends the
// process.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "memory.hpp"
#include "queue.hpp"

namespace {

/// What the opaque structures hold in the fake. They are copied like the real ones, so they hold values only.
struct Layout {
  std::int32_t type;
  std::int32_t batch;
  std::uint64_t rows, cols;
  std::int64_t ld, batch_stride;
};
struct Operation {
  std::int32_t compute, scale;
  std::int32_t transpose_a, transpose_b;
  std::int32_t epilogue, bias_type;
  const void* bias;
};
struct Preference {
  std::uint64_t workspace;
  std::uint32_t reductions;
  std::uint32_t alignment[4];
};
/// An algorithm is good for the problem it was made for: layouts as a checksum, alignments as promised.
struct Algorithm {
  std::uint64_t problem;
  std::uint64_t workspace;
  std::uint32_t alignment[4];
  std::uint32_t bias_alignment;
};

template <class Held, class Opaque>
Held& held(Opaque* opaque) {
  static_assert(sizeof(Held) <= sizeof(Opaque));
  return *static_cast<Held*>(static_cast<void*>(opaque->data));
}
Layout& held(cublasLtMatrixLayout_t layout) { return held<Layout>(layout); }
Operation& held(cublasLtMatmulDesc_t operation) { return held<Operation>(operation); }
Preference& held(cublasLtMatmulPreference_t preference) { return held<Preference>(preference); }

template <class Field>
cublasStatus_t take(Field& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(std::int32_t type) { return type == CUDA_R_32F ? 4 : 2; }
bool known(std::int32_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F; }

float load(const void* data, std::int32_t type, std::int64_t at) {
  switch (type) {
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}
void store(void* data, std::int32_t type, std::int64_t at, float x) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(data)[at] = __float2half_rn(x);
      break;
    default:
      static_cast<float*>(data)[at] = x;
  }
}

std::uint64_t checksum(const Operation& operation, std::initializer_list<const Layout*> layouts) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](std::uint64_t number) { hash = (hash ^ number) * 0x100000001b3u; };
  for (const std::int32_t number :
       {operation.compute, operation.transpose_a, operation.transpose_b, operation.epilogue}) {
    mix(static_cast<std::uint64_t>(number));
  }
  for (const Layout* layout : layouts) {
    mix(static_cast<std::uint64_t>(layout->type));
    mix(static_cast<std::uint64_t>(layout->batch));
    mix(layout->rows);
    mix(layout->cols);
    mix(static_cast<std::uint64_t>(layout->ld));
    mix(static_cast<std::uint64_t>(layout->batch_stride));
  }
  return hash;
}

/// Whether the combination is one of those the plugin may use; the table is that of cublasLtMatmul's documentation.
cublasStatus_t judge(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool computes =
      o.compute == CUBLAS_COMPUTE_32F || (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F);
  if (!computes || o.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!known(a.type) || a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.type != a.type && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && o.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && o.bias_type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = o.transpose_a == CUBLAS_OP_T;
  const bool tb = o.transpose_b == CUBLAS_OP_T;
  const bool fits = (ta ? a.cols : a.rows) == d.rows && (tb ? b.rows : b.cols) == d.cols &&
                    (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows) && c.rows == d.rows && c.cols == d.cols;
  if (!fits || a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* one : {&a, &b, &c, &d}) {
    if (one->rows == 0 || one->cols == 0 || one->ld < static_cast<std::int64_t>(one->rows))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/// One product of a batch, after its pointers were moved there.
void multiply(const Operation& o, const Layout& a, const Layout& b, const Layout& d, float alpha, const void* a_data,
              const void* b_data, float beta, const void* c_data, const Layout& c, void* d_data) {
  const bool ta = o.transpose_a == CUBLAS_OP_T;
  const bool tb = o.transpose_b == CUBLAS_OP_T;
  const auto m = static_cast<std::int64_t>(d.rows);
  const auto n = static_cast<std::int64_t>(d.cols);
  const auto depth = static_cast<std::int64_t>(ta ? a.rows : a.cols);
  // op(A) as [m][depth] in FP32, once.
  std::vector<float> wide(static_cast<std::size_t>(m * depth));
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t i = 0; i < m; ++i)
      wide[static_cast<std::size_t>(k * m + i)] = load(a_data, a.type, ta ? k + i * a.ld : i + k * a.ld);
  }
  std::vector<float> sums(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t k = 0; k < depth; ++k) {
      const float factor = load(b_data, b.type, tb ? j + k * b.ld : k + j * b.ld);
      const float* column = &wide[static_cast<std::size_t>(k * m)];
      for (std::int64_t i = 0; i < m; ++i) sums[static_cast<std::size_t>(i)] += column[i] * factor;
    }
    for (std::int64_t i = 0; i < m; ++i) {
      float x = alpha * sums[static_cast<std::size_t>(i)];
      if (beta != 0) x += beta * load(c_data, c.type, i + j * c.ld);
      if (o.epilogue == CUBLASLT_EPILOGUE_BIAS) x += load(o.bias, o.bias_type, i);
      store(d_data, d.type, i + j * d.ld, x);
    }
  }
}

/// What the library takes for granted of an address that it was shown: null stands for any alignment.
std::uint32_t shown_alignment(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

std::size_t extent(const Layout& l) {
  const std::int64_t last =
      (l.batch - 1) * l.batch_stride + static_cast<std::int64_t>(l.cols - 1) * l.ld + static_cast<std::int64_t>(l.rows);
  return static_cast<std::size_t>(last) * size_of(l.type);
}

void check_operand(const void* data, const Layout& layout, std::uint32_t alignment, const char* what) {
  if (fake::place_of(data) != fake::Place::device) fake::violation(std::string(what) + ": not device memory");
  fake::check_range(data, extent(layout), what);
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    fake::violation(std::string(what) + ": less aligned than the algorithm was asked for");
  }
}

const void* at(const void* data, const Layout& layout, int batch) {
  return static_cast<const std::byte*>(data) +
         static_cast<std::ptrdiff_t>(batch * layout.batch_stride) * static_cast<std::ptrdiff_t>(size_of(layout.type));
}

}  // namespace

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  static std::uint64_t anything;
  *handle = reinterpret_cast<cublasLtHandle_t>(&anything);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "error of the fake cuBLASLt";
  }
}
std::size_t CUBLASWINAPI cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                       std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  held(*layout) = {type, 1, rows, cols, ld, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t attribute,
                                                             const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(held(layout).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(held(layout).batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                                     cudaDataType_t scale) {
  *operation = new cublasLtMatmulDescOpaque_t{};
  held(*operation) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                                           cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                           std::size_t bytes) {
  Operation& o = held(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(o.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(o.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(o.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(o.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(o.bias_type, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  held(*preference) = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                 cublasLtMatmulPreferenceAttributes_t attribute,
                                                                 const void* value, std::size_t bytes) {
  Preference& p = held(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(p.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(p.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(p.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p.alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t preference, int wanted,
                                                           cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = judge(held(operation), held(a), held(b), held(c), held(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& p = held(preference);
  if ((p.reductions & ~unsigned{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
    fake::violation("cuBLASLt may add rounded parts of sums: the reduction schemes are not limited");
  }
  results[0] = {};
  Algorithm algorithm{};
  algorithm.problem = checksum(held(operation), {&held(a), &held(b), &held(c), &held(d)});
  algorithm.workspace = std::min<std::uint64_t>(p.workspace, 4096);
  std::copy(std::begin(p.alignment), std::end(p.alignment), std::begin(algorithm.alignment));
  algorithm.bias_alignment = shown_alignment(held(operation).bias);
  static_assert(sizeof algorithm <= sizeof results[0].algo);
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                                           const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                                           cublasLtMatrixLayout_t b, const void* beta, const void* c_data,
                                           cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                                           const cublasLtMatmulAlgo_t* algo, void* workspace,
                                           std::size_t workspace_bytes, cudaStream_t stream) {
  const Operation o = held(operation);
  const Layout la = held(a), lb = held(b), lc = held(c), ld = held(d);
  const cublasStatus_t status = judge(o, la, lb, lc, ld);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo == nullptr) fake::violation("cublasLtMatmul chooses an algorithm by itself at every call");
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.problem != checksum(o, {&la, &lb, &lc, &ld})) fake::violation("an algorithm for another problem");
  if (workspace_bytes < algorithm.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  fake::check_range(workspace, algorithm.workspace, "workspace of a product");
  check_operand(a_data, la, algorithm.alignment[0], "A of a product");
  check_operand(b_data, lb, algorithm.alignment[1], "B of a product");
  check_operand(c_data, lc, algorithm.alignment[2], "C of a product");
  check_operand(d_data, ld, algorithm.alignment[3], "D of a product");
  const float factor = *static_cast<const float*>(alpha);
  const float keep = *static_cast<const float*>(beta);
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    Layout bias{o.bias_type, 1, ld.rows, 1, static_cast<std::int64_t>(ld.rows), 0};
    check_operand(o.bias, bias, algorithm.bias_alignment, "bias of a product");
  }
  fake::enqueue(stream, "matmul", [=] {
    std::memset(workspace, 0xFF, algorithm.workspace);  // as a split sum would leave it: what others keep there is lost
    for (int batch = 0; batch < ld.batch; ++batch) {
      multiply(o, la, lb, ld, factor, at(a_data, la, batch), at(b_data, lb, batch), keep, at(c_data, lc, batch), lc,
               const_cast<void*>(at(d_data, ld, batch)));
    }
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
