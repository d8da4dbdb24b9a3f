#include "gemm.hpp"

#include <array>
#include <string>
#include <unordered_map>

#include "check.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr std::uint32_t kWidestAccess = 16;

void check(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError("cuda: " + what + ": " + cublasLtGetStatusString(status) + " (cuBLASLt status " +
                      std::to_string(static_cast<int>(status)) + ")");
  }
}

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
  const auto address = reinterpret_cast<std::uintptr_t>(data) | kWidestAccess;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

std::int64_t stride_of(const View& view) { return view.rows > 1 ? view.row_stride : view.cols; }

}  // namespace

/// A product as numbers only.
struct Gemm::Key {
  std::array<std::int64_t, 12> numbers{};
  bool operator==(const Key&) const = default;

  static Key of(const BatchedProduct& p, bool bias) {
    const std::int64_t k = p.transpose_a ? p.a.rows : p.a.cols;
    const auto code = static_cast<std::int64_t>(p.a.dtype) | static_cast<std::int64_t>(p.dst.dtype) << 4 |
                      std::int64_t{p.transpose_a} << 8 | std::int64_t{p.transpose_b} << 9 | std::int64_t{bias} << 10 |
                      std::int64_t{p.beta != 0} << 11;
    const auto alignment = std::int64_t{alignment_of(p.a.data)} | std::int64_t{alignment_of(p.b.data)} << 8 |
                           std::int64_t{alignment_of(p.dst.data)} << 16;
    return {{code, alignment, p.dst.rows, p.dst.cols, k, stride_of(p.a), stride_of(p.b), stride_of(p.dst), p.count,
             p.count > 1 ? p.a_stride : 0, p.count > 1 ? p.b_stride : 0, p.count > 1 ? p.dst_stride : 0}};
  }

  DType source() const { return static_cast<DType>(numbers[0] & 15); }
  DType target() const { return static_cast<DType>(numbers[0] >> 4 & 15); }
  bool transpose_a() const { return (numbers[0] >> 8 & 1) != 0; }
  bool transpose_b() const { return (numbers[0] >> 9 & 1) != 0; }
  bool bias() const { return (numbers[0] >> 10 & 1) != 0; }
  std::uint32_t alignment(int operand) const { return static_cast<std::uint32_t>(numbers[1] >> 8 * operand & 255); }
  std::int64_t m() const { return numbers[2]; }
  std::int64_t n() const { return numbers[3]; }
  std::int64_t k() const { return numbers[4]; }
  std::int64_t row_stride(int operand) const { return numbers[static_cast<std::size_t>(5 + operand)]; }
  std::int64_t count() const { return numbers[8]; }
  std::int64_t batch_stride(int operand) const { return numbers[static_cast<std::size_t>(9 + operand)]; }

  std::string text() const {
    return "matmul [" + std::to_string(m()) + ", " + std::to_string(k()) + "] x [" + std::to_string(k()) + ", " +
           std::to_string(n()) + "]" + (count() > 1 ? " x " + std::to_string(count()) : "") + ", " +
           std::string(name_of(source())) + " to " + std::string(name_of(target()));
  }
};

/// Row-major matrices are column-major ones transposed, so cuBLASLt computes dstᵀ = op(b)ᵀ · op(a)ᵀ: its A is our b,
/// its B our a.
struct Gemm::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, dst = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::string text;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (dst != nullptr) cublasLtMatrixLayoutDestroy(dst);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), text);
  }
};

/// One product, as it is sent or kept back.
struct Gemm::Call {
  cublasLtHandle_t library;
  Plan* plan;
  const void *a, *b, *bias;
  void* dst;
  float alpha, beta;
  void* workspace;
  std::size_t workspace_bytes;

  void operator()(cudaStream_t stream) const {
    if (bias != nullptr) plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    check(cublasLtMatmul(library, plan->operation, &alpha, b, plan->b, a, plan->a, &beta, dst, plan->dst, dst,
                         plan->dst, &plan->algorithm, workspace, workspace_bytes, stream),
          plan->text);
    after_launch(stream, plan->text.c_str());
  }
};

struct Gemm::Plans {
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over words
      for (const std::int64_t number : key.numbers) hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
      return static_cast<std::size_t>(hash ^ hash >> 29);
    }
  };
  std::unordered_map<Key, std::unique_ptr<Plan>, Hash> by_key;
};

Gemm::Gemm(CudaDevice& device, bool tf32)
    : device_(device),
      f32_compute_(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F),
      plans_(std::make_unique<Plans>()),
      workspace_bytes_(std::size_t{device.facts().major >= 9 ? 32u : 4u} << 20) {  // as NVIDIA recommends
  check(cublasLtCreate(&handle_), "cuBLASLt cannot start");
  workspace(device_.lane(Lane::compute));
}

Gemm::~Gemm() {
  plans_.reset();
  cublasLtDestroy(handle_);
}

void Gemm::multiply(const BatchedProduct& p, const View& bias, Stream& stream) {
  ESPALIER_ASSERT(p.a.dtype == p.b.dtype && (p.dst.dtype == p.a.dtype || p.dst.dtype == DType::f32));
  ESPALIER_ASSERT((p.transpose_a ? p.a.cols : p.a.rows) == p.dst.rows &&
                  (p.transpose_b ? p.b.rows : p.b.cols) == p.dst.cols);
  ESPALIER_ASSERT((p.transpose_a ? p.a.rows : p.a.cols) == (p.transpose_b ? p.b.cols : p.b.rows));
  ESPALIER_ASSERT(p.beta == 0 || p.dst.dtype == DType::f32);
  ESPALIER_ASSERT(!bias || (bias.dtype == p.dst.dtype && bias.elements() == p.dst.cols &&
                            alignment_of(bias.data) == kWidestAccess));
  if (p.dst.empty() || p.count == 0) return;
  ESPALIER_ASSERT(!p.a.empty());
  Plan& plan = plan_for(Key::of(p, static_cast<bool>(bias)));
  handle(stream).run(Call{handle_, &plan, p.a.data, p.b.data, bias ? bias.data : nullptr, p.dst.data, p.alpha, p.beta,
                          workspace(stream), workspace_bytes_});
}

Gemm::Plan& Gemm::plan_for(const Key& key) {
  const auto found = plans_->by_key.find(key);
  if (found != plans_->by_key.end()) return *found->second;
  return *plans_->by_key.emplace(key, make_plan(key)).first->second;
}

std::size_t Gemm::plans() const { return plans_->by_key.size(); }

std::unique_ptr<Gemm::Plan> Gemm::make_plan(const Key& key) const {
  auto plan = std::make_unique<Plan>();
  plan->text = key.text();
  const std::string& text = plan->text;
  check(cublasLtMatmulDescCreate(&plan->operation, key.source() == DType::f32 ? f32_compute_ : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F),
        text);
  plan->set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b() ? CUBLAS_OP_T : CUBLAS_OP_N);
  plan->set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a() ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias()) {
    plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    plan->set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(key.target()));
    // The heuristic takes the alignment it may rely on from the address: what every bias has, not what the first one
    // has.
    plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(std::uintptr_t{kWidestAccess}));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& to, DType type, std::int64_t rows, std::int64_t columns,
                          int operand) {
    // Their rows are our columns.
    check(cublasLtMatrixLayoutCreate(&to, type_of(type), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), key.row_stride(operand)),
          text);
    const auto count = static_cast<std::int32_t>(key.count());
    const std::int64_t stride = key.batch_stride(operand);
    check(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), text);
    check(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          text);
  };
  layout(plan->a, key.source(), key.transpose_a() ? key.k() : key.m(), key.transpose_a() ? key.m() : key.k(), 0);
  layout(plan->b, key.source(), key.transpose_b() ? key.n() : key.k(), key.transpose_b() ? key.k() : key.n(), 1);
  layout(plan->dst, key.target(), key.m(), key.n(), 2);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), text);
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, void (*)(cublasLtMatmulPreference_t)> owner(
      preference, [](cublasLtMatmulPreference_t one) { cublasLtMatmulPreferenceDestroy(one); });
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), text);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes_});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment(2));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment(2));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->b, plan->a, plan->dst, plan->dst, preference, 1,
                                       &result, &found),
        text);
  if (found == 0) throw DeviceError("cuda: " + text + ": cuBLASLt has no algorithm for this shape on this GPU");
  check(result.state, text);
  plan->algorithm = result.algo;
  return plan;
}

void* Gemm::workspace(Stream& stream) {
  for (int i = 0; i < kLanes; ++i) {
    if (&device_.lane(static_cast<Lane>(i)) != &stream) continue;
    DeviceMemory& block = workspaces_[static_cast<std::size_t>(i)];
    if (!block) block = device_.reserve(workspace_bytes_, "workspace");
    return block.data();
  }
  ESPALIER_ASSERT(!"a stream that is no lane of the device");
  return nullptr;
}

}  // namespace espalier::kernels_fused::cuda
