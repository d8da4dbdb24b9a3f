// cuBLASLt as far as the plugin uses it: plain loops over column-major matrices, FP32 sums in a fixed order.
// Everything else is refused with CUBLAS_STATUS_NOT_SUPPORTED, and what would be undefined on a device ends the
// process.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "controls.hpp"
#include "cublaslt_problem.hpp"
#include "memory.hpp"
#include "queue.hpp"

namespace {

using namespace fake::blas;

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

/// A number that a test may set between two calls; 0 where it is not set.
std::uint32_t number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

namespace fake {

void refuse_epilogues(bool refuse) { blas::refuse_epilogues(refuse); }

}  // namespace fake

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
  held(*operation) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr, nullptr, 0, -1};
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
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(o.auxiliary, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(o.auxiliary_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return take(o.auxiliary_type, value, bytes);
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
  if (number_of("ESPALIER_FAKE_CUDA_ONLY_BATCHED") != 0 && held(d).batch == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& p = held(preference);
  if ((p.reductions & ~unsigned{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
    fake::violation("cuBLASLt may add rounded parts of sums: the reduction schemes are not limited");
  }
  const std::uint32_t first = number_of("ESPALIER_FAKE_CUDA_ALGORITHM");
  *found = std::min<int>(wanted, kAlgorithms);
  for (int i = 0; i < *found; ++i) {
    Algorithm algorithm{};
    algorithm.problem = checksum(held(operation), {&held(a), &held(b), &held(c), &held(d)});
    algorithm.number = (first + static_cast<std::uint32_t>(i)) % kAlgorithms;
    algorithm.workspace = std::min<std::uint64_t>(p.workspace, 4096);
    std::copy(std::begin(p.alignment), std::end(p.alignment), std::begin(algorithm.alignment));
    algorithm.bias_alignment = alignment_of(held(operation).bias);
    algorithm.auxiliary_alignment = alignment_of(held(operation).auxiliary);
    static_assert(sizeof algorithm <= sizeof results[i].algo);
    results[i] = {};
    std::memcpy(&results[i].algo, &algorithm, sizeof algorithm);
    results[i].workspaceSize = algorithm.workspace;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                    const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulHeuristicResult_t* result) {
  const cublasStatus_t status = judge(held(operation), held(a), held(b), held(c), held(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.problem != checksum(held(operation), {&held(a), &held(b), &held(c), &held(d)})) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (number_of("ESPALIER_FAKE_CUDA_REFUSED_ALGORITHM") == algorithm.number + 1) return CUBLAS_STATUS_ARCH_MISMATCH;
  *result = {};
  result->workspaceSize = algorithm.workspace;
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
  check_epilogue(o, algorithm, ld);
  fake::enqueue(stream, "matmul", [=] {
    constexpr double kMilliseconds[kAlgorithms] = {1.0, 0.5, 0.75};
    fake::clock() += kMilliseconds[algorithm.number];
    std::memset(workspace, 0xFF, algorithm.workspace);  // as a split sum would leave it: what others keep there is lost
    multiply(o, algorithm, la, a_data, lb, b_data, lc, c_data, ld, d_data, factor, keep);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
