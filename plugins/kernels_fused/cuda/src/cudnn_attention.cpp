#include "cudnn_attention.hpp"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "espalier/error.hpp"
#include "scratch.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

constexpr std::int64_t kVector = 8;        ///< elements of a 16-byte access
constexpr std::uintptr_t kAlignment = 16;  ///< of pointers
constexpr float kMasked = -1e30f;

/// Numbers of the tensors in a graph and in the table of pointers it is run with.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kStatistics, kGradOut, kGradQ, kGradK, kGradV, kSlopes, kUids };
/// By Uid; null where a problem has no such tensor.
using Pointers = std::array<void*, kUids>;

void check(fe::error_t status, const std::string& what) {
  if (status.is_bad()) throw DeviceError("cuda: " + what + ": cuDNN: " + status.get_message());
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS) throw DeviceError("cuda: " + what + ": " + cudnnGetErrorString(status));
}

/// A problem as numbers: what a graph is made for.
struct Key {
  std::array<std::int64_t, 32> numbers{};
  bool operator<(const Key& other) const { return numbers < other.numbers; }

  static Key of(const Attention& shape, const AttentionGradient* gradient) {
    Key key;
    std::size_t next = 0;
    const auto put = [&](std::int64_t number) { key.numbers[next++] = number; };
    const auto strides = [&](const AttentionOperand& operand) {
      put(operand.batch_stride);
      put(operand.position_stride);
      put(operand.head_stride);
    };
    put(static_cast<std::int64_t>(shape.dtype) | std::int64_t{gradient != nullptr} << 8 |
        std::int64_t{shape.slopes != nullptr} << 9 | std::int64_t{!shape.saved.empty()} << 10);
    for (const std::int64_t number : {shape.batch, shape.heads, shape.head_dim, shape.queries}) put(number);
    put(std::bit_cast<std::int32_t>(shape.scale));
    for (const AttentionOperand* operand : {&shape.q, &shape.k, &shape.v, &shape.out}) strides(*operand);
    if (gradient == nullptr) return key;
    for (const AttentionOperand* operand :
         {&gradient->grad_out, &gradient->grad_q, &gradient->grad_k, &gradient->grad_v}) {
      strides(*operand);
    }
    return key;
  }
};

/// The gradients of a problem that lie as its operands do: training's layout.
AttentionGradient alike(const Attention& shape) { return {shape, shape.out, shape.q, shape.k, shape.v}; }

/// Makes the graph of one problem.
class Builder {
 public:
  Builder(Graph& graph, const Attention& shape) : graph_(graph), shape_(shape) {
    const auto type = shape.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph_.set_io_data_type(type).set_intermediate_data_type(fe::DataType_t::FLOAT);
    graph_.set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape.slopes != nullptr) {
      slopes_ = graph_.tensor(Tensor_attributes()
                                  .set_name("slopes")
                                  .set_uid(kSlopes)
                                  .set_dim({1, shape.heads, 1, 1})
                                  .set_stride({shape.heads, 1, 1, 1})
                                  .set_data_type(fe::DataType_t::FLOAT));
    }
  }

  void forward() {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_attn_scale(shape_.scale);
    options.set_generate_stats(!shape_.saved.empty());
    mask(options);
    const auto [out, statistics] =
        graph_.sdpa(input("q", kQ, shape_.q), input("k", kK, shape_.k), input("v", kV, shape_.v), options);
    output(out, kOut, shape_.out);
    if (shape_.saved.empty()) return;
    statistics->set_output(true).set_uid(kStatistics).set_data_type(fe::DataType_t::FLOAT);
    statistics->set_dim(rows()).set_stride(row_strides());
  }

  void backward(const AttentionGradient& gradient) {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_attn_scale(shape_.scale);
    options.set_deterministic_algorithm(true);
    mask(options);
    if (slopes_ != nullptr) {  // what is added to a score leaves its gradient as it is
      options.set_score_mod_bprop([](const std::shared_ptr<Graph>&, const TensorPointer& slope) { return slope; });
    }
    const TensorPointer statistics = graph_.tensor(Tensor_attributes()
                                                       .set_name("statistics")
                                                       .set_uid(kStatistics)
                                                       .set_dim(rows())
                                                       .set_stride(row_strides())
                                                       .set_data_type(fe::DataType_t::FLOAT));
    const auto [q, k, v] = graph_.sdpa_backward(input("q", kQ, shape_.q), input("k", kK, shape_.k),
                                                input("v", kV, shape_.v), input("out", kOut, shape_.out),
                                                input("grad_out", kGradOut, gradient.grad_out), statistics, options);
    output(q, kGradQ, gradient.grad_q);
    output(k, kGradK, gradient.grad_k);
    output(v, kGradV, gradient.grad_v);
  }

 private:
  std::vector<std::int64_t> dims() const { return {shape_.batch, shape_.heads, shape_.queries, shape_.head_dim}; }
  std::vector<std::int64_t> rows() const { return {shape_.batch, shape_.heads, shape_.queries, 1}; }
  std::vector<std::int64_t> row_strides() const { return {shape_.heads * shape_.queries, shape_.queries, 1, 1}; }
  static std::vector<std::int64_t> strides(const AttentionOperand& operand) {
    return {operand.batch_stride, operand.head_stride, operand.position_stride, 1};
  }

  TensorPointer input(const char* name, Uid uid, const AttentionOperand& operand) {
    return graph_.tensor(Tensor_attributes().set_name(name).set_uid(uid).set_dim(dims()).set_stride(strides(operand)));
  }
  void output(const TensorPointer& tensor, Uid uid, const AttentionOperand& operand) {
    tensor->set_output(true).set_uid(uid).set_dim(dims()).set_stride(strides(operand));
  }

  /// Causal, and with slopes: slope · (j − i) added in FP32. A modifier of scores must then do the masking as well.
  template <class Options>
  void mask(Options& options) {
    if (slopes_ == nullptr) {
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
      return;
    }
    options.set_score_mod([slopes = slopes_](const std::shared_ptr<Graph>& graph, const TensorPointer& score) {
      using Pointwise = fe::graph::Pointwise_attributes;
      using Mode = fe::PointwiseMode_t;
      const auto integer = [](const TensorPointer& tensor) {
        tensor->set_data_type(fe::DataType_t::INT32);
        return tensor;
      };
      const auto options_of = [](const char* name, Mode mode) {
        return Pointwise().set_name(name).set_mode(mode).set_compute_data_type(fe::DataType_t::INT32);
      };
      const auto query = integer(graph->pointwise(score, options_of("query", Mode::GEN_INDEX).set_axis(2)));
      const auto key = integer(graph->pointwise(score, options_of("key", Mode::GEN_INDEX).set_axis(3)));
      const auto distance = integer(graph->pointwise(key, query, options_of("distance", Mode::SUB)));
      const auto bias = graph->pointwise(distance, slopes, Pointwise().set_name("bias").set_mode(Mode::MUL));
      const auto biased = graph->pointwise(score, bias, Pointwise().set_name("biased").set_mode(Mode::ADD));
      const auto allowed = graph->pointwise(
          query, key,
          Pointwise().set_name("allowed").set_mode(Mode::CMP_GE).set_compute_data_type(fe::DataType_t::BOOLEAN));
      allowed->set_data_type(fe::DataType_t::BOOLEAN);
      return graph->pointwise(biased, std::make_shared<Tensor_attributes>(kMasked), allowed,
                              Pointwise().set_name("masked").set_mode(Mode::BINARY_SELECT));
    });
  }

  Graph& graph_;
  const Attention& shape_;
  TensorPointer slopes_;
};

/// Up to the choice of an engine. @returns cuDNN's reason against the graph.
fe::error_t prepare(Graph& graph, cudnnHandle_t handle) {
  fe::error_t status = graph.validate();
  if (status.is_good())
    status = handle != nullptr ? graph.build_operation_graph(handle) : graph.build_operation_graph();
  if (status.is_good()) status = graph.create_execution_plans({fe::HeurMode_t::A});
  if (status.is_good()) status = graph.check_support();
  return status;
}

void build(Graph& graph, const Attention& shape, const AttentionGradient* gradient) {
  Builder builder(graph, shape);
  if (gradient != nullptr) {
    builder.backward(*gradient);
  } else {
    builder.forward();
  }
}

/// Accesses of 16 bytes fit every row.
bool vectors_fit(const AttentionOperand& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % kAlignment == 0 && operand.batch_stride % kVector == 0 &&
         operand.position_stride % kVector == 0 && operand.head_stride % kVector == 0;
}

/// What can be refused without asking cuDNN. Texts without numbers: each is logged once.
Reason refused(const Attention& shape) {
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16) return "cuDNN takes bf16 and f16 only";
  if (shape.dropout.active()) return "attention dropout is not 0";
  if (shape.key_lengths != nullptr) return "ragged batch";
  if (shape.first_query != 0 || shape.queries != shape.keys) return "decoding";
  for (const AttentionOperand* operand : {&shape.q, &shape.k, &shape.v, &shape.out}) {
    if (!vectors_fit(*operand)) return "operands are not aligned to 16 bytes";
  }
  return {};
}

class CudnnAttention final : public AttentionKernels {
 public:
  explicit CudnnAttention(Scratch& scratch) : scratch_(scratch) { check(cudnnCreate(&handle_), "cuDNN cannot start"); }
  ~CudnnAttention() override {
    plans_.clear();
    cudnnDestroy(handle_);
  }

  Reason supports(const Attention& shape) const override {
    if (Reason reason = refused(shape)) return reason;
    if (Reason reason = plan(shape, nullptr).reason) return reason;
    if (shape.saved.empty()) return {};
    const AttentionGradient gradient = alike(shape);
    return plan(shape, &gradient).reason;
  }

  /// log-sum-exp of each row, f32.
  std::size_t saved_bytes(const Attention& shape) const override {
    return static_cast<std::size_t>(shape.batch * shape.heads * shape.queries) * sizeof(float);
  }

  std::size_t workspace(const Attention& shape) const override {
    if (supports(shape)) return 0;
    const AttentionGradient gradient = alike(shape);
    const std::int64_t bytes = plan(shape, nullptr).workspace;
    return static_cast<std::size_t>(shape.saved.empty() ? bytes : std::max(bytes, plan(shape, &gradient).workspace));
  }

  void forward(const Attention& args, Stream& stream) override {
    ESPALIER_ASSERT(args.saved.empty() || args.saved.bytes() >= saved_bytes(args));
    run(plan(args, nullptr), pointers_of(args), stream);
  }

  void backward(const AttentionGradient& args, Stream& stream) override {
    Pointers pointers = pointers_of(args.forward);
    for (const auto& [uid, operand] : {std::pair{kGradOut, &args.grad_out}, std::pair{kGradQ, &args.grad_q},
                                       std::pair{kGradK, &args.grad_k}, std::pair{kGradV, &args.grad_v}}) {
      ESPALIER_ASSERT(vectors_fit(*operand));
      pointers[uid] = operand->data;
    }
    run(plan(args.forward, &args), pointers, stream);
  }

 private:
  struct Plan {
    Graph graph;
    std::unordered_map<std::int64_t, void*> pointers;
    std::int64_t workspace = 0;
    Reason reason;  ///< against this shape
  };

  /// Made with the first question about the shape.
  Plan& plan(const Attention& shape, const AttentionGradient* gradient) const {
    const auto [found, fresh] = plans_.try_emplace(Key::of(shape, gradient));
    if (!fresh) return *found->second;
    found->second = std::make_unique<Plan>();
    Plan& made = *found->second;
    build(made.graph, shape, gradient);
    fe::error_t status = prepare(made.graph, handle_);
    if (status.is_good()) status = made.graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    if (status.is_good()) status = made.graph.get_workspace_size(made.workspace);
    if (status.is_bad()) made.reason = "cuDNN: " + status.get_message();
    return made;
  }

  static Pointers pointers_of(const Attention& args) {
    Pointers pointers{};
    pointers[kQ] = args.q.data;
    pointers[kK] = args.k.data;
    pointers[kV] = args.v.data;
    pointers[kOut] = args.out.data;
    if (!args.saved.empty()) pointers[kStatistics] = args.saved.data;
    pointers[kSlopes] = const_cast<float*>(args.slopes);
    return pointers;
  }

  void run(Plan& plan, const Pointers& pointers, Stream& stream) {
    if (plan.reason) throw DeviceError("cuda: attention: " + *plan.reason);
    std::byte* workspace = plan.workspace > 0 ? scratch_.bytes(static_cast<std::size_t>(plan.workspace)) : nullptr;
    cuda::handle(stream).run([library = handle_, plan = &plan, pointers, workspace](cudaStream_t queue) {
      check(cudnnSetStream(library, queue), "attention");
      for (std::size_t uid = 0; uid < pointers.size(); ++uid) {
        if (pointers[uid] != nullptr) plan->pointers[static_cast<std::int64_t>(uid)] = pointers[uid];
      }
      check(plan->graph.execute(library, plan->pointers, workspace), "attention");
      after_launch(queue, "attention");
    });
  }

  Scratch& scratch_;
  cudnnHandle_t handle_ = nullptr;
  mutable std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_cudnn_attention(Scratch& scratch) {
  return std::make_unique<CudnnAttention>(scratch);
}

Reason cudnn_without_plan(const std::string& device, int sm, const Attention& shape, bool backward) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  check(properties->deserialize(std::vector<std::uint8_t>(device.begin(), device.end())), "properties of the GPU");
  Graph graph;
  graph.set_device_properties(properties).set_sm_version(sm);
  const AttentionGradient gradient = alike(shape);
  build(graph, shape, backward ? &gradient : nullptr);
  fe::error_t status = prepare(graph, nullptr);
  if (status.is_bad()) return status.get_message();
  return {};
}

}  // namespace espalier::kernels_fused::cuda
