#include "gemm.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "espalier/error.hpp"
#include "product_call.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

bool aligned(const View& view) { return reinterpret_cast<std::uintptr_t>(view.data) % ProductKey::kAlignment == 0; }

bool same_shape(const View& a, const View& b) { return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype; }

/// What of cuBLASLt's documentation rules the extras out, or "".
std::string rule_against(const BatchedProduct& p, const Extras& extras) {
  const bool gelu = present(extras.gelu), backward = present(extras.gelu_src), sums = present(extras.sum_a);
  if (int{gelu} + int{backward} + int{sums} > 1 || (present(extras.bias) && (backward || sums))) {
    return "cuBLASLt does one of them in a pass";
  }
  if (p.count != 1 || p.beta != 0) {
    if (gelu || backward) return "cuBLASLt does it for one product that is not added to";
  }
  if (sums && extras.sum_a.dtype != p.dst.dtype) return "cuBLASLt's sums have the type of the product";
  const View& auxiliary = gelu ? p.dst : extras.gelu_src;
  if (!gelu && !backward) return {};
  constexpr std::int64_t kMultiple = 8;  // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
  if (auxiliary.row_stride % kMultiple != 0) return "rows before GELU do not start at multiples of 8 elements";
  if (!aligned(auxiliary)) return "the matrix before GELU does not start at a multiple of 16 bytes";
  return {};
}

std::string epilogue_name(const ProductKey& key) {
  switch (key.extras() & ~std::uint32_t{ProductKey::kBias}) {
    case ProductKey::kGelu:
      return "GELU epilogue";
    case ProductKey::kGeluSource:
      return "epilogue for the gradient of GELU";
    default:
      return "bias gradient epilogue";
  }
}

}  // namespace

Gemm::Gemm(CudaDevice& device, GemmOptions options, Log log, Log warn)
    : device_(device),
      options_(options),
      log_(std::move(log)),
      warn_(std::move(warn)),
      workspace_bytes_(std::size_t{device.facts().major >= 9 ? 32u : 4u} << 20) {  // as NVIDIA recommends
  check_blas(cublasLtCreate(&handle_), "cuBLASLt cannot start");
  workspace(device_.lane(Lane::compute));
}

Gemm::~Gemm() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

void Gemm::multiply(const BatchedProduct& p, const Extras& extras, Stream& stream) {
  ESPALIER_ASSERT(p.a.dtype == p.b.dtype && (p.dst.dtype == p.a.dtype || p.dst.dtype == DType::f32));
  ESPALIER_ASSERT((p.transpose_a ? p.a.cols : p.a.rows) == p.dst.rows &&
                  (p.transpose_b ? p.b.rows : p.b.cols) == p.dst.cols);
  ESPALIER_ASSERT((p.transpose_a ? p.a.rows : p.a.cols) == (p.transpose_b ? p.b.cols : p.b.rows));
  ESPALIER_ASSERT(p.beta == 0 || p.dst.dtype == DType::f32);
  ESPALIER_ASSERT(!present(extras.bias) ||
                  (extras.bias.dtype == p.dst.dtype && extras.bias.elements() == p.dst.cols && aligned(extras.bias)));
  ESPALIER_ASSERT(!present(extras.sum_a) || (extras.sum_a.dtype == p.dst.dtype &&
                                             extras.sum_a.elements() == p.dst.rows && aligned(extras.sum_a)));
  ESPALIER_ASSERT(!present(extras.gelu) || same_shape(extras.gelu, p.dst));
  ESPALIER_ASSERT(!present(extras.gelu_src) || same_shape(extras.gelu_src, p.dst));
  if (p.dst.empty() || p.count == 0) return;
  ESPALIER_ASSERT(!p.a.empty());
  ProductPlan& plan = find_plan(ProductKey::of(p, extras));
  if (!plan.found) throw DeviceError("cuda: " + plan.text + ": cuBLASLt has no algorithm for this shape on this GPU");
  const bool gelu = present(extras.gelu);
  const ProductCall call{handle_,
                         &plan,
                         plan.number,
                         p.a.data,
                         p.b.data,
                         present(extras.sum_a) ? extras.sum_a.data : extras.bias.data,
                         gelu ? p.dst.data : extras.gelu_src.data,
                         gelu ? extras.gelu.data : p.dst.data,
                         p.alpha,
                         p.beta,
                         workspace(stream),
                         workspace_bytes_};
  handle(stream).run(call);
}

bool Gemm::fuses(const BatchedProduct& product, const Extras& extras) {
  if (product.dst.empty() || product.a.empty()) return false;
  const ProductKey key = ProductKey::of(product, extras);
  const std::string rule = rule_against(product, extras);
  if (!rule.empty()) {
    say_unfused(key, rule);
    return false;
  }
  return find_plan(key).found;
}

ProductPlan& Gemm::find_plan(const ProductKey& key) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) {
    known->second->last_use = ++uses_;
    return *known->second;
  }
  make_room();
  auto plan = std::make_unique<ProductPlan>(key, options_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  cublasStatus_t status{};
  const std::vector<cublasLtMatmulAlgo_t> candidates = plan->candidates(handle_, workspace_bytes_, 1, status);
  plan->found = !candidates.empty();
  plan->last_use = ++uses_;
  plan->number = ++made_;
  if (plan->found) {
    plan->algorithm = candidates.front();
  } else if ((key.extras() & ~std::uint32_t{ProductKey::kBias}) == 0) {
    throw DeviceError("cuda: " + plan->text +
                      ": cuBLASLt has no algorithm for this shape on this GPU: " + cublasLtGetStatusString(status));
  } else {
    say_unfused(key,
                "cuBLASLt has no " + epilogue_name(key) + " for this shape (" + cublasLtGetStatusString(status) + ")");
  }
  return *plans_.emplace(key, std::move(plan)).first->second;
}

/// Decoding makes plans for every number of keys. A plan that went is made again, with the same choice.
void Gemm::make_room() {
  if (plans_.size() < options_.most_plans) return;
  std::vector<std::uint64_t> uses;
  for (const auto& [key, plan] : plans_) {
    if (!plan->announced) uses.push_back(plan->last_use);
  }
  if (uses.empty()) return;
  for (int i = 0; i < kLanes; ++i) {  // work that is kept back holds plans
    [[maybe_unused]] const cudaStream_t sent = handle(device_.lane(static_cast<Lane>(i)));
  }
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  std::erase_if(plans_, [&](const auto& one) { return !one.second->announced && one.second->last_use <= *middle; });
}

/// Once for products that differ in their number of rows alone.
void Gemm::say_unfused(const ProductKey& key, const std::string& why) {
  const std::string kind = std::to_string(key.extras()) + " " + std::to_string(key.numbers[0]) + " " +
                           std::to_string(key.extras() == ProductKey::kSum ? key.m() : key.k()) + " " +
                           std::to_string(key.n()) + " " + why;
  if (said_.insert(kind).second && log_) log_(key.text() + ": " + why + ": own kernel");
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
