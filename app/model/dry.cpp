#include "model/dry.hpp"

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

// The families with scratch are asked for that of each call of the walk, so that they have it before the first step.
class DryMatrix final : public MatrixKernels {
 public:
  explicit DryMatrix(const MatrixKernels& real) : real_(real) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return real_.workspace(shape); }
  void matmul(const Matmul& args, Stream&) override { real_.workspace(args); }
  void column_sum(const View&, const View&, bool, Stream&) override {}

 private:
  const MatrixKernels& real_;
};

class DryAttention final : public AttentionKernels {
 public:
  explicit DryAttention(const AttentionKernels& real) : real_(real) {}
  Reason supports(const Attention& shape) const override { return real_.supports(shape); }
  std::size_t saved_bytes(const Attention& shape) const override { return real_.saved_bytes(shape); }
  std::size_t workspace(const Attention& shape) const override { return real_.workspace(shape); }
  void forward(const Attention& args, Stream&) override { real_.workspace(args); }
  void backward(const AttentionGradient& args, Stream&) override { real_.workspace(args.forward); }

 private:
  const AttentionKernels& real_;
};

class DryNorm final : public NormKernels {
 public:
  explicit DryNorm(const NormKernels& real) : real_(real) {}
  Reason supports(DType working, std::int64_t hidden) const override { return real_.supports(working, hidden); }
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override {
    return real_.workspace(tokens, hidden);
  }
  void forward(const LayerNorm& args, Stream&) override { real_.workspace(args.src.rows, args.src.cols); }
  void backward(const LayerNormGradient& args, Stream&) override { real_.workspace(args.src.rows, args.src.cols); }

 private:
  const NormKernels& real_;
};

class DryElementwise final : public ElementwiseKernels {
 public:
  Reason supports(DType) const override { return {}; }
  void bias_gelu(const View&, const View&, const View&, Stream&) override {}
  void bias_gelu_backward(const View&, const View&, const View&, const View&, Stream&) override {}
  void bias_dropout_add(const View&, const View&, const View&, const Dropout&, const View&, Stream&) override {}
  void dropout_backward(const View&, const Dropout&, const View&, Stream&) override {}
  void embedding(const View&, const View&, std::int64_t, const View&, Stream&) override {}
  void embedding_backward(const View&, const View&, std::int64_t, const View&, Stream&) override {}
  void add(const View&, const View&, const View&, Stream&) override {}
  void scale(const View&, float, const View&, Stream&) override {}
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
        matrix(*real.kernels.matrix),
        attention(*real.kernels.attention),
        norm(*real.kernels.norm) {}
  DryDevice device;
  DryTensor tensor;
  DryData data;
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

std::vector<LayerUse> DryRun::take_uses() { return std::exchange(parts_->data.uses, {}); }

}  // namespace espalier::app
