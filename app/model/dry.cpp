#include "model/dry.hpp"

#include <algorithm>
#include <utility>

namespace espalier::app {
namespace {

void* no_memory() { return reinterpret_cast<void*>(Arena::kDryAddress); }

class DryStream final : public Stream {};

class DryDevice final : public Device {
 public:
  std::string_view name() const override { return "dry"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t, std::string_view) override { return {}; }
  Stream& lane(Lane) override { return stream_; }
  void order(Stream&, Stream&) override {}
  void copy(const View&, const View&, Stream&) override {}
  void fill_zero(const View&, Stream&) override {}
  void wait(Stream&) override {}
  std::vector<MemoryUse> memory_use() const override { return {}; }

 protected:
  void release(void*, std::size_t) noexcept override {}

 private:
  DryStream stream_;
};

class DryTensor final : public TensorParallel {
 public:
  explicit DryTensor(TensorParallel& real) : real_(real) {}
  int size() const override { return real_.size(); }
  int rank() const override { return real_.rank(); }
  Reason accepts(const ModelShape& model) const override { return real_.accepts(model); }
  Placement place(const Parameter& parameter) const override { return real_.place(parameter); }
  std::int64_t rows(std::int64_t tokens, Region region) const override { return real_.rows(tokens, region); }
  std::int64_t first_row(std::int64_t tokens) const override { return real_.first_row(tokens); }
  DType partial_dtype(DType working) const override { return real_.partial_dtype(working); }
  Border enter(const View& x, const View& scratch, Pass, Stream&) override { return {scratch ? scratch : x, {}}; }
  Border leave(const View& x, const View& scratch, Pass, Stream&) override { return {scratch ? scratch : x, {}}; }
  Request reduce(const View&, Reduce, Stream&) override { return {}; }
  void finish(Request, Stream&) override {}

 private:
  TensorParallel& real_;
};

class DryData final : public DataParallel {
 public:
  DryData(std::span<const LocalParameter> parameters, DType working) : parameters_(parameters), working_(working) {}
  StateBytes plan(const StatePlan&, const Optimizer&) const override { return {}; }
  void bind(const StatePlan&, const Optimizer&, Backend&) override {}
  void acquire(int layer, Need need, Stream&) override { uses.push_back({layer, need}); }
  void release(int, Need) override {}
  View weight(int parameter) const override { return view(parameter, working_); }
  std::uint64_t weight_version() const override { return 1; }
  GradientSlot gradient(int parameter, int) override { return {view(parameter, DType::f32), true}; }
  void written(int, int, Half, Stream&) override {}
  void reduce(Do, Stream&) override {}
  void squares(double*, Stream&) override {}
  void step(Optimizer&, const StepInputs&, Stream&) override {}
  std::vector<StatePiece> state() override { return {}; }
  void refresh(Stream&) override {}
  bool replicas_equal() const override { return true; }
  void sync(Stream&) override {}

  std::vector<LayerUse> uses;

 private:
  View view(int parameter, DType dtype) const {
    const Shape& shape = parameters_[static_cast<std::size_t>(parameter)].placement.local;
    return View::matrix(no_memory(), shape.rows(), shape.cols(), dtype);
  }
  std::span<const LocalParameter> parameters_;
  DType working_;
};

/// What the calls of a walk ask for.
struct Asked {
  std::size_t workspace = 0;
  std::vector<Matmul> products;

  void scratch(std::size_t bytes) { workspace = std::max(workspace, bytes); }
  void product(const Matmul& args) {
    const auto same = [](const View& a, const View& b) {
      return a.rows == b.rows && a.cols == b.cols && a.row_stride == b.row_stride && a.dtype == b.dtype &&
             (a.data == nullptr) == (b.data == nullptr);
    };
    for (const Matmul& known : products) {
      if (same(args.a, known.a) && same(args.b, known.b) && same(args.dst, known.dst) && same(args.bias, known.bias) &&
          same(args.gelu, known.gelu) && same(args.gelu_src, known.gelu_src) && same(args.sum_a, known.sum_a) &&
          args.transpose_a == known.transpose_a && args.transpose_b == known.transpose_b &&
          args.accumulate == known.accumulate) {
        return;
      }
    }
    products.push_back(args);
  }
};

class DryMatrix final : public MatrixKernels {
 public:
  DryMatrix(const MatrixKernels& real, Asked& asked) : real_(real), asked_(asked) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return real_.workspace(shape); }
  bool fuses(const Matmul& shape) const override { return real_.fuses(shape); }
  void matmul(const Matmul& args, Stream&) override {
    asked_.scratch(real_.workspace(args));
    asked_.product(args);
  }
  std::size_t sum_workspace(std::int64_t rows, std::int64_t cols) const override {
    return real_.sum_workspace(rows, cols);
  }
  void column_sum(const View& src, const View&, bool, Stream&) override {
    asked_.scratch(real_.sum_workspace(src.rows, src.cols));
  }

 private:
  const MatrixKernels& real_;
  Asked& asked_;
};

class DryAttention final : public AttentionKernels {
 public:
  DryAttention(const AttentionKernels& real, Asked& asked) : real_(real), asked_(asked) {}
  Reason supports(const Attention& shape) const override { return real_.supports(shape); }
  std::size_t saved_bytes(const Attention& shape) const override { return real_.saved_bytes(shape); }
  std::size_t workspace(const Attention& shape) const override { return real_.workspace(shape); }
  void forward(const Attention& args, Stream&) override { asked_.scratch(real_.workspace(args)); }
  void backward(const AttentionGradient& args, Stream&) override { asked_.scratch(real_.workspace(args.forward)); }

 private:
  const AttentionKernels& real_;
  Asked& asked_;
};

class DryNorm final : public NormKernels {
 public:
  DryNorm(const NormKernels& real, Asked& asked) : real_(real), asked_(asked) {}
  Reason supports(DType working, std::int64_t hidden) const override { return real_.supports(working, hidden); }
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override {
    return real_.workspace(tokens, hidden);
  }
  void forward(const LayerNorm& args, Stream&) override { ask(args.src); }
  void backward(const LayerNormGradient& args, Stream&) override { ask(args.src); }

 private:
  void ask(const View& src) { asked_.scratch(real_.workspace(src.rows, src.cols)); }
  const NormKernels& real_;
  Asked& asked_;
};

class DryElementwise final : public ElementwiseKernels {
 public:
  DryElementwise(const ElementwiseKernels& real, Asked& asked) : real_(real), asked_(asked) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  void bias_gelu(const View&, const View&, const View&, Stream&) override {}
  void bias_gelu_backward(const View&, const View&, const View&, const View&, Stream&) override {}
  void bias_dropout_add(const View&, const View&, const View&, const Dropout&, const View&, Stream&) override {}
  void dropout_backward(const View&, const Dropout&, const View&, Stream&) override {}
  void embedding(const View&, const View&, std::int64_t, const View&, Stream&) override {}
  std::size_t embedding_workspace(std::int64_t tokens, std::int64_t table_rows) const override {
    return real_.embedding_workspace(tokens, table_rows);
  }
  void embedding_backward(const View& ids, const View&, std::int64_t, const View& grad_table, Stream&) override {
    asked_.scratch(real_.embedding_workspace(ids.elements(), grad_table.rows));
  }
  void add(const View&, const View&, const View&, Stream&) override {}
  void scale(const View&, float, const View&, Stream&) override {}

 private:
  const ElementwiseKernels& real_;
  Asked& asked_;
};

class DryLoss final : public LossKernels {
 public:
  Reason supports(DType) const override { return {}; }
  void row_max(const View&, std::int64_t, const View&, Stream&) override {}
  void exp_sum(const View&, std::int64_t, const View&, const View&, std::int64_t, const View&, const View&,
               Stream&) override {}
  void gradient(const View&, std::int64_t, const View&, const View&, const View&, const View&, std::int64_t, float,
                const View&, const View&, Stream&) override {}
  void accumulate(const View&, const View&, const View&, Stream&) override {}
};

}  // namespace

struct DryRun::Parts {
  Parts(const ModelContext& real, std::span<const LocalParameter> parameters)
      : tensor(*real.tensor),
        data(parameters, real.working),
        matrix(*real.kernels.matrix, asked),
        attention(*real.kernels.attention, asked),
        norm(*real.kernels.norm, asked),
        elementwise(*real.kernels.elementwise, asked) {}
  DryDevice device;
  DryTensor tensor;
  DryData data;
  Asked asked;
  DryMatrix matrix;
  DryAttention attention;
  DryNorm norm;
  DryElementwise elementwise;
  DryLoss loss;
};

DryRun::DryRun(const ModelContext& real, std::span<const LocalParameter> parameters)
    : parts_(std::make_unique<Parts>(real, parameters)), context_(real) {
  context_.device = &parts_->device;
  context_.stream = &parts_->device.lane(Lane::compute);
  context_.tensor = &parts_->tensor;
  context_.data = &parts_->data;
  context_.arena = &arena_;
  context_.kernels.matrix = &parts_->matrix;
  context_.kernels.attention = &parts_->attention;
  context_.kernels.norm = &parts_->norm;
  context_.kernels.elementwise = &parts_->elementwise;
  context_.kernels.loss = &parts_->loss;
}

DryRun::~DryRun() = default;

std::size_t DryRun::workspace() const { return parts_->asked.workspace; }

std::span<const Matmul> DryRun::products() const { return parts_->asked.products; }

std::vector<LayerUse> DryRun::take_uses() { return std::exchange(parts_->data.uses, {}); }

}  // namespace espalier::app
