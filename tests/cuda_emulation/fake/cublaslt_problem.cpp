#include "cublaslt_problem.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "controls.hpp"
#include "memory.hpp"

namespace fake::blas {
namespace {

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

bool refuses = false;

bool epilogues_are_refused() {
  const char* const text = std::getenv("ESPALIER_FAKE_CUDA_EPILOGUES");
  return refuses || (text != nullptr && std::string_view(text) == "0");
}

/// The epilogues that the plugin uses, with what the documentation asks for: types of bias and auxiliary matrix, its
/// leading dimension.
cublasStatus_t judge_epilogue(const Operation& o, const Layout& d) {
  const Epilogue e = epilogue_of(o);
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (!e.bias && !e.auxiliary() && !e.sums) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((e.auxiliary() || e.sums) && epilogues_are_refused()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((e.bias || e.sums) && o.bias_type != d.type && o.bias_type != -1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!e.auxiliary()) return CUBLAS_STATUS_SUCCESS;
  if (o.auxiliary_type != d.type && o.auxiliary_type != -1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.auxiliary_ld % 8 != 0 || o.auxiliary_ld < static_cast<std::int64_t>(d.rows)) return CUBLAS_STATUS_INVALID_VALUE;
  if (d.batch != 1) return CUBLAS_STATUS_INVALID_VALUE;  // their matrices have strides of their own, which are not set
  return CUBLAS_STATUS_SUCCESS;
}

constexpr float kRoot2OverPi = 0.79788456f, kCube = 0.044715f;

float gelu(float x) { return 0.5f * x * (1 + std::tanh(kRoot2OverPi * x * (1 + kCube * x * x))); }

float gelu_gradient(float x) {
  const float t = std::tanh(kRoot2OverPi * x * (1 + kCube * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kRoot2OverPi * (1 + 3 * kCube * x * x);
}

/// The i-th of `depth` places, in the order of the algorithm.
std::int64_t place(std::uint32_t algorithm, std::int64_t i, std::int64_t depth) {
  if (algorithm == 0) return i;
  if (algorithm == 1) return depth - 1 - i;
  const std::int64_t even = (depth + 1) / 2;
  return i < even ? 2 * i : 2 * (i - even) + 1;
}

/// Sums of B over its depth, for each column of D.
void sum_depth(const Operation& o, const Layout& b, const Layout& d, const void* b_data) {
  const bool tb = o.transpose_b == CUBLAS_OP_T;
  const auto depth = static_cast<std::int64_t>(tb ? b.cols : b.rows);
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(d.cols); ++j) {
    float sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) sum += load(b_data, b.type, tb ? j + k * b.ld : k + j * b.ld);
    store(o.bias, d.type, j, sum);
  }
}

/// What becomes of element (i, j) of alpha · A · B + beta · C.
float finish(const Operation& o, const Epilogue& epilogue, const Layout& d, float x, std::int64_t i, std::int64_t j) {
  if (epilogue.bias) x += load(o.bias, d.type, i);
  const std::int64_t beside = i + j * o.auxiliary_ld;
  if (epilogue.gelu) {
    store(o.auxiliary, d.type, beside, x);
    return gelu(x);
  }
  return epilogue.gelu_gradient ? x * gelu_gradient(load(o.auxiliary, d.type, beside)) : x;
}

/// One product of a batch, after its pointers were moved there.
void multiply_one(const Operation& o, std::uint32_t number, const Layout& a, const void* a_data, const Layout& b,
                  const void* b_data, const Layout& c, const void* c_data, const Layout& d, void* d_data, float alpha,
                  float beta) {
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
  const Epilogue epilogue = epilogue_of(o);
  if (epilogue.sums) sum_depth(o, b, d, b_data);
  std::vector<float> sums(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t step = 0; step < depth; ++step) {
      const std::int64_t k = place(number, step, depth);
      const float factor = load(b_data, b.type, tb ? j + k * b.ld : k + j * b.ld);
      const float* column = &wide[static_cast<std::size_t>(k * m)];
      for (std::int64_t i = 0; i < m; ++i) sums[static_cast<std::size_t>(i)] += column[i] * factor;
    }
    for (std::int64_t i = 0; i < m; ++i) {
      float x = alpha * sums[static_cast<std::size_t>(i)];
      if (beta != 0) x += beta * load(c_data, c.type, i + j * c.ld);
      store(d_data, d.type, i + j * d.ld, finish(o, epilogue, d, x, i, j));
    }
  }
}

std::size_t extent(const Layout& l) {
  const std::int64_t last =
      (l.batch - 1) * l.batch_stride + static_cast<std::int64_t>(l.cols - 1) * l.ld + static_cast<std::int64_t>(l.rows);
  return static_cast<std::size_t>(last) * size_of(l.type);
}

const void* at(const void* data, const Layout& layout, int batch) {
  return static_cast<const std::byte*>(data) +
         static_cast<std::ptrdiff_t>(batch * layout.batch_stride) * static_cast<std::ptrdiff_t>(size_of(layout.type));
}

}  // namespace

Epilogue epilogue_of(const Operation& o) {
  const auto is = [&](std::initializer_list<int> kinds) {
    return std::find(kinds.begin(), kinds.end(), o.epilogue) != kinds.end();
  };
  return {is({CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}),
          is({CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}), is({CUBLASLT_EPILOGUE_DGELU}),
          is({CUBLASLT_EPILOGUE_BGRADB})};
}

void refuse_epilogues(bool refuse) { refuses = refuse; }

std::uint64_t checksum(const Operation& operation, std::initializer_list<const Layout*> layouts) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](std::uint64_t number) { hash = (hash ^ number) * 0x100000001b3u; };
  for (const std::int32_t number :
       {operation.compute, operation.transpose_a, operation.transpose_b, operation.epilogue}) {
    mix(static_cast<std::uint64_t>(number));
  }
  mix(static_cast<std::uint64_t>(operation.auxiliary_ld));
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

cublasStatus_t judge(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool computes =
      o.compute == CUBLAS_COMPUTE_32F || (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F);
  if (!computes || o.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!known(a.type) || a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.type != a.type && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const cublasStatus_t status = judge_epilogue(o, d); status != CUBLAS_STATUS_SUCCESS) return status;
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

void check_operand(const void* data, const Layout& layout, std::uint32_t alignment, const char* what) {
  if (fake::place_of(data) != fake::Place::device) fake::violation(std::string(what) + ": not device memory");
  fake::check_range(data, extent(layout), what);
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    fake::violation(std::string(what) + ": less aligned than the algorithm was asked for");
  }
}

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

void check_epilogue(const Operation& o, const Algorithm& algorithm, const Layout& d) {
  const Epilogue e = epilogue_of(o);
  if (e.bias || e.sums) {
    const std::uint64_t length = e.bias ? d.rows : d.cols;
    const Layout vector{d.type, 1, length, 1, static_cast<std::int64_t>(length), 0};
    check_operand(o.bias, vector, algorithm.bias_alignment,
                  e.bias ? "bias of a product" : "bias gradient of a product");
  }
  if (e.auxiliary()) {
    const Layout matrix{d.type, 1, d.rows, d.cols, o.auxiliary_ld, 0};
    check_operand(o.auxiliary, matrix, std::max(algorithm.auxiliary_alignment, 16u), "auxiliary matrix of a product");
  }
}

void multiply(const Operation& operation, const Algorithm& algorithm, const Layout& a, const void* a_data,
              const Layout& b, const void* b_data, const Layout& c, const void* c_data, const Layout& d, void* d_data,
              float alpha, float beta) {
  for (int batch = 0; batch < d.batch; ++batch) {
    multiply_one(operation, algorithm.number, a, at(a_data, a, batch), b, at(b_data, b, batch), c, at(c_data, c, batch),
                 d, const_cast<void*>(at(d_data, d, batch)), alpha, beta);
  }
}

}  // namespace fake::blas
