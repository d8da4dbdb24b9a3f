// Algorithms of announced products: measured where that is asked for, and one rank's choice for its tensor group.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "espalier/error.hpp"
#include "gemm.hpp"
#include "product_call.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kSeries = 5;            ///< measurements of a candidate; the median counts
constexpr int kCalls = 3;             ///< products in a measurement, which hide the events around it
constexpr float kWorthwhile = 0.98f;  ///< of the time of the heuristic's favourite: less is noise

constexpr std::size_t kBorder = 256;
std::size_t padded(std::size_t bytes) { return (bytes + kBorder - 1) / kBorder * kBorder; }

/// Two events, a measured time apart.
class Interval {
 public:
  Interval() {
    check(cudaEventCreateWithFlags(&begin_, cudaEventDefault), "event of a measurement");
    if (const cudaError_t status = cudaEventCreateWithFlags(&end_, cudaEventDefault); status != cudaSuccess) {
      cudaEventDestroy(begin_);
      check(status, "event of a measurement");
    }
  }
  ~Interval() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Interval(const Interval&) = delete;
  Interval& operator=(const Interval&) = delete;

  void begin(cudaStream_t stream) { check(cudaEventRecord(begin_, stream), "event of a measurement"); }
  void end(cudaStream_t stream) { check(cudaEventRecord(end_, stream), "event of a measurement"); }
  /// Milliseconds, once the stream has got there.
  float time() const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "time of a measurement");
    return milliseconds;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Bytes from the first element to the last.
std::size_t bytes_of(std::int64_t rows, std::int64_t stride, DType dtype) {
  return padded(static_cast<std::size_t>(rows * stride) * size_of(dtype));
}

std::string number_text(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

/// What the ranks of a group tell each other.
struct Gemm::Choice {
  ProductKey key;
  cublasLtMatmulAlgo_t algorithm;
};

/// Device memory that any of the measured products can work on.
struct Gemm::Operands {
  View a, b, dst, auxiliary, vector;

  struct Sizes {
    std::size_t a = 0, b = 0, dst = 0, auxiliary = 0, vector = 0;
    std::size_t sum() const { return a + b + dst + auxiliary + vector; }
  };
  static Sizes sizes(const ProductKey& key) {
    const std::int64_t rows_a = key.transpose_a() ? key.k() : key.m(), rows_b = key.transpose_b() ? key.n() : key.k();
    Sizes sizes;
    sizes.a = bytes_of(rows_a, key.row_stride(0), key.source());
    sizes.b = bytes_of(rows_b, key.row_stride(1), key.source());
    sizes.dst = bytes_of(key.m(), key.row_stride(2), key.target());
    sizes.auxiliary = bytes_of(key.m(), key.auxiliary_stride(), key.target());
    sizes.vector = bytes_of(1, std::max(key.m(), key.n()), DType::f32);
    return sizes;
  }
  Operands(std::byte* memory, const Sizes& most, DType source) {
    const auto take = [&](std::size_t bytes, DType dtype) {
      const View view = View::vector(memory, static_cast<std::int64_t>(bytes / size_of(dtype)), dtype);
      memory += bytes;
      return view;
    };
    a = take(most.a, source);
    b = take(most.b, source);
    dst = take(most.dst, DType::u8);
    auxiliary = take(most.auxiliary, DType::u8);
    vector = take(most.vector, DType::u8);
  }
};

void Gemm::prepare(std::span<const ProductKey> products, Communicator* group, const Fill& fill) {
  std::vector<ProductPlan*> plans;
  for (const ProductKey& key : products) {
    if (key.m() * key.n() * key.k() * key.count() == 0) continue;
    ProductPlan& plan = find_plan(key);
    if (!plan.found || std::find(plans.begin(), plans.end(), &plan) != plans.end()) continue;
    plan.announced = true;
    plans.push_back(&plan);
  }
  const bool alone = group == nullptr || group->size() == 1;
  std::string how = "the first that cuBLASLt's heuristic names";
  if (options_.timed && (alone || group->rank() == 0)) how = time_plans(plans, fill);
  if (!alone) {
    agree(plans, *group);
    if (group->rank() != 0) how = "those of the tensor group's first rank";
  }
  if (log_ && !plans.empty()) log_("algorithms of " + std::to_string(plans.size()) + " matrix products: " + how);
}

/// @returns what was done, for the log.
std::string Gemm::time_plans(std::span<ProductPlan* const> plans, const Fill& fill) {
  Operands::Sizes most;
  for (const ProductPlan* plan : plans) {
    const Operands::Sizes sizes = Operands::sizes(plan->key);
    most = {std::max(most.a, sizes.a), std::max(most.b, sizes.b), std::max(most.dst, sizes.dst),
            std::max(most.auxiliary, sizes.auxiliary), std::max(most.vector, sizes.vector)};
  }
  DeviceMemory memory;
  try {
    memory = device_.reserve(most.sum(), "workspace");
  } catch (const DeviceError& error) {
    if (warn_)
      warn_("algorithms of matrix products are not timed: no memory for their operands: " + std::string(error.what()));
    return "the first that cuBLASLt's heuristic names";
  }
  Stream& stream = device_.lane(Lane::compute);
  std::size_t timed = 0;
  double before = 0, after = 0;
  const DType none = DType::u8;
  for (DType filled = none; ProductPlan* const plan : plans) {
    cublasStatus_t status{};
    const std::vector<cublasLtMatmulAlgo_t> candidates =
        plan->candidates(handle_, workspace_bytes_, kCandidates, status);
    if (candidates.size() < 2) continue;
    const Operands operands(memory.data(), most, plan->key.source());
    if (filled != plan->key.source() && fill) {
      fill(operands.a, stream);
      fill(operands.b, stream);
      filled = plan->key.source();
    }
    const std::vector<float> times = measure(*plan, candidates, operands);
    auto best = std::min_element(times.begin(), times.end());
    if (*best > kWorthwhile * times.front()) best = times.begin();
    plan->algorithm = candidates[static_cast<std::size_t>(best - times.begin())];
    plan->number = ++made_;  // graphs of it are made anew
    timed += 1;
    before += times.front();
    after += *best;
  }
  device_.wait(stream);
  return "the fastest of up to " + std::to_string(kCandidates) + " each, " + std::to_string(timed) +
         " timed; one call of each takes " + number_text(after, "%.3f") + " ms in place of " +
         number_text(before, "%.3f") + " ms";
}

/// Milliseconds of each candidate; infinity for one that cuBLASLt does not start.
std::vector<float> Gemm::measure(ProductPlan& plan, std::span<const cublasLtMatmulAlgo_t> candidates,
                                 const Operands& operands) {
  Stream& stream = device_.lane(Lane::compute);
  ProductCall call{handle_,
                   &plan,
                   plan.number,
                   operands.a.data,
                   operands.b.data,
                   operands.vector.data,
                   operands.auxiliary.data,
                   operands.dst.data,
                   1.0f,
                   0.0f,
                   workspace(stream),
                   workspace_bytes_};
  std::vector<float> medians;
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    plan.algorithm = candidate;
    try {
      call(handle(stream));  // loads its code
    } catch (const DeviceError&) {
      medians.push_back(std::numeric_limits<float>::infinity());
      continue;
    }
    std::array<Interval, kSeries> intervals;
    for (Interval& interval : intervals) {
      interval.begin(handle(stream));
      for (int i = 0; i < kCalls; ++i) call(handle(stream));
      interval.end(handle(stream));
    }
    device_.wait(stream);
    std::array<float, kSeries> times{};
    std::transform(intervals.begin(), intervals.end(), times.begin(),
                   [](const Interval& one) { return one.time() / kCalls; });
    std::nth_element(times.begin(), times.begin() + kSeries / 2, times.end());
    medians.push_back(times[kSeries / 2]);
  }
  return medians;
}

/// The choices of rank 0 travel through device memory, which is what the group's communicator is for.
void Gemm::agree(std::span<ProductPlan* const> plans, Communicator& group) {
  static_assert(std::is_trivially_copyable_v<Choice>);
  Stream& stream = device_.lane(Lane::compute);
  const auto broadcast = [&](const View& host) {
    const DeviceMemory memory = device_.reserve(host.bytes(), "workspace");
    const View there = View::vector(memory.data(), host.elements(), host.dtype);
    device_.copy(host, there, stream);
    group.run({Verb::broadcast, there, there}, stream);
    device_.copy(there, host, stream);
    device_.wait(stream);
  };
  // How many, and by which library.
  std::array<std::int64_t, 2> facts{static_cast<std::int64_t>(plans.size()),
                                    static_cast<std::int64_t>(cublasLtGetVersion())};
  broadcast(View::vector(facts.data(), 2, DType::i64));
  if (facts[0] == 0) return;
  std::vector<Choice> choices(static_cast<std::size_t>(facts[0]));
  const bool first = group.rank() == 0;
  for (std::size_t i = 0; first && i < choices.size(); ++i) choices[i] = {plans[i]->key, plans[i]->algorithm};
  broadcast(View::vector(choices.data(), static_cast<std::int64_t>(choices.size() * sizeof(Choice)), DType::u8));
  if (first) return;
  const bool same_library = facts[1] == static_cast<std::int64_t>(cublasLtGetVersion());
  for (const Choice& choice : choices) {
    const auto mine = plans_.find(choice.key);
    if (mine == plans_.end() || !mine->second->found) continue;
    ProductPlan& plan = *mine->second;
    if (same_library && plan.takes(handle_, choice.algorithm, workspace_bytes_)) {
      plan.algorithm = choice.algorithm;
      plan.number = ++made_;
    } else if (warn_) {
      warn_(plan.text +
            ": the algorithm of the tensor group's first rank does not run here (another GPU or version of cuBLASLt): "
            "own choice; ranks may differ in last bits");
    }
  }
}

}  // namespace espalier::kernels_fused::cuda
