// Data parallelism of one rank: whole weights, whole FP32 accumulators, whole optimizer state, nothing on the wire.
#include <algorithm>
#include <string>

#include "espalier/parallel/data.hpp"

namespace espalier {
namespace {

constexpr std::int64_t kAlign = 64;  // elements: a cache line at least, whatever the dtype

std::int64_t padded(std::int64_t elements) { return (elements + kAlign - 1) / kAlign * kAlign; }

/// Gradients that are written in parts (the tied embedding by the head and by the embedding's scatter, a head in chunks
/// of its rows): they are zeroed at the end of a step and always added to. The others overwrite at their first write
/// instead.
bool written_in_parts(const Parameter& parameter) {
  return parameter.tied || parameter.role == Role::word_embedding || parameter.role == Role::position_embedding ||
         parameter.role == Role::head_weight;
}

/// Elements a kind of state has in all, in a layout of `elements` elements and `parameters` parameters.
std::int64_t state_elements(const StateSpec& spec, std::int64_t elements, std::int64_t parameters) {
  switch (spec.keep) {
    case Keep::like_parameter:
      return elements;
    case Keep::per_tensor:
      return parameters * kAlign;
    case Keep::global:
      return kAlign;
  }
  return 0;
}

void fill(const View& view, float value, Device& device, Stream& stream) {
  if (value == 0) return;  // reserved memory is zero
  const bool known = with_float_type(view.dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> values(static_cast<std::size_t>(view.elements()), from_float<T>(value));
    device.copy(View::vector(values.data(), view.elements(), view.dtype), view, stream);
    device.wait(stream);
  });
  ESPALIER_ASSERT(known);
}

class SingleReplica final : public DataParallel {
 public:
  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override {
    check(plan.precision, optimizer);
    std::int64_t elements = 0;
    for (const LocalParameter& local : plan.parameters) elements += padded(local.placement.local.elements());
    StateBytes bytes;
    bytes.weights = static_cast<std::size_t>(elements) * size_of(plan.precision.working);
    bytes.gradients = static_cast<std::size_t>(elements) * sizeof(float);
    for (const StateSpec& spec : optimizer.state()) {
      bytes.optimizer +=
          static_cast<std::size_t>(state_elements(spec, elements, std::ssize(plan.parameters))) * size_of(spec.dtype);
    }
    return bytes;
  }

  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override {
    check(plan.precision, optimizer);
    backend_ = &backend;
    specs_.assign(optimizer.state().begin(), optimizer.state().end());
    entries_.clear();
    state_memory_.clear();

    std::int64_t elements = 0;
    for (const LocalParameter& local : plan.parameters) {
      entries_.push_back({&local.parameter, elements, local.placement.local.elements()});
      elements += padded(local.placement.local.elements());
    }
    Device& device = backend.device();
    const DType working = plan.precision.working;
    weight_memory_ = device.reserve(static_cast<std::size_t>(elements) * size_of(working), "weights");
    gradient_memory_ = device.reserve(static_cast<std::size_t>(elements) * sizeof(float), "gradients");
    Stream& stream = device.lane(Lane::compute);
    for (const StateSpec& spec : specs_) {
      const std::int64_t n = state_elements(spec, elements, std::ssize(entries_));
      state_memory_.push_back(device.reserve(static_cast<std::size_t>(n) * size_of(spec.dtype), "optimizer"));
      fill(View::vector(state_memory_.back().data(), n, spec.dtype), spec.initial, device, stream);
    }

    states_.assign(entries_.size() * specs_.size(), View{});
    for (std::size_t p = 0; p < entries_.size(); ++p) {
      Entry& entry = entries_[p];
      const Shape& shape = plan.parameters[p].placement.local;
      const auto at = [&](const DeviceMemory& memory, DType dtype) {
        return View::matrix(memory.data() + static_cast<std::size_t>(entry.offset) * size_of(dtype), shape.rows(),
                            shape.cols(), dtype);
      };
      entry.whole_matrix = optimizer.unit(*entry.parameter) == Unit::tensor;
      entry.weight = at(weight_memory_, working);
      entry.gradient = at(gradient_memory_, DType::f32);
      entry.master = entry.weight;
      for (std::size_t s = 0; s < specs_.size(); ++s) {
        View& view = states_[p * specs_.size() + s];
        const DType dtype = specs_[s].dtype;
        if (specs_[s].keep == Keep::like_parameter) {
          view = at(state_memory_[s], dtype);
          if (!entry.whole_matrix) view = view.flat();
        } else {
          const std::size_t slot = specs_[s].keep == Keep::per_tensor ? p * kAlign : 0;
          view = View::vector(state_memory_[s].data() + slot * size_of(dtype), 1, dtype);
        }
        if (is_master(specs_[s])) entry.master = at(state_memory_[s], dtype);
      }
    }
    version_ += 1;
  }

  void acquire(int, Need, Stream&) override {}
  void release(int, Need) override {}
  View weight(int parameter) const override { return entries_[static_cast<std::size_t>(parameter)].weight; }
  std::uint64_t weight_version() const override { return version_; }

  GradientSlot gradient(int parameter, int) override {
    Entry& entry = entries_[static_cast<std::size_t>(parameter)];
    const bool add = entry.written || written_in_parts(*entry.parameter);
    entry.written = true;
    return {entry.gradient, add};
  }

  void written(int, int, Half, Stream&) override {}

  void reduce(Do, Stream& stream) override {
    for (Entry& entry : entries_) {
      if (!entry.written && !written_in_parts(*entry.parameter)) backend_->device().fill_zero(entry.gradient, stream);
      entry.written = true;
    }
  }

  void squares(double* slots, Stream& stream) override {
    for (const Entry& entry : entries_) {
      backend_->kernels().update->squared_sum(entry.gradient.flat(), slots + entry.parameter->index, stream);
    }
  }

  void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) override {
    for (std::size_t p = 0; p < entries_.size(); ++p) {
      Entry& entry = entries_[p];
      const auto shaped = [&](const View& view) { return entry.whole_matrix ? view : view.flat(); };
      const bool separate = entry.master.data != entry.weight.data;
      const UpdateBlock block{entry.parameter, shaped(entry.gradient), separate ? shaped(entry.weight) : View{},
                              std::span(states_).subspan(p * specs_.size(), specs_.size()), shaped(entry.master)};
      optimizer.update(block, inputs, *backend_->kernels().update, stream);
      if (written_in_parts(*entry.parameter)) backend_->device().fill_zero(entry.gradient, stream);
      entry.written = false;
    }
    version_ += 1;
  }

  std::vector<StatePiece> state() override {
    std::vector<StatePiece> pieces;
    for (std::size_t p = 0; p < entries_.size(); ++p) {
      const Entry& entry = entries_[p];
      pieces.push_back({static_cast<int>(p), "master", 0, entry.elements, entry.master.flat(), true});
      for (std::size_t s = 0; s < specs_.size(); ++s) {
        if (is_master(specs_[s]) || specs_[s].keep == Keep::global) continue;
        const View& view = states_[p * specs_.size() + s];
        pieces.push_back({static_cast<int>(p), specs_[s].name, 0, view.elements(), view.flat(), true});
      }
    }
    for (std::size_t s = 0; s < specs_.size(); ++s) {
      if (specs_[s].keep == Keep::global && !entries_.empty()) {
        pieces.push_back({-1, specs_[s].name, 0, 1, states_[s], true});
      }
    }
    return pieces;
  }

  void refresh(Stream& stream) override {
    for (const Entry& entry : entries_) {
      if (entry.master.data == entry.weight.data) continue;
      backend_->kernels().elementwise->add(entry.master, View{}, entry.weight, stream);
    }
    version_ += 1;
  }

  bool replicas_equal() const override { return true; }
  void sync(Stream&) override {}

 private:
  struct Entry {
    const Parameter* parameter;
    std::int64_t offset;
    std::int64_t elements;
    View weight = {}, gradient = {}, master = {};
    bool whole_matrix = false;
    bool written = false;
  };

  static bool is_master(const StateSpec& spec) { return std::string_view(spec.name) == "master"; }

  static void check(const Precision& precision, const Optimizer& optimizer) {
    if (precision.accumulate != DType::f32) {
      throw ConfigError("optimizer: gradients are accumulated in f32, the optimizer asks for " +
                        std::string(name_of(precision.accumulate)));
    }
    const auto specs = optimizer.state();
    const auto master = std::find_if(specs.begin(), specs.end(), is_master);
    const DType truth = master == specs.end() ? precision.working : master->dtype;
    if (truth != DType::f32 || (master != specs.end() && master->keep != Keep::like_parameter)) {
      throw ConfigError("optimizer: the true weights must be f32 and shaped like the parameter: with " +
                        std::string(name_of(precision.working)) +
                        " working weights it must declare an f32 state \"master\"");
    }
  }

  Backend* backend_ = nullptr;
  std::vector<StateSpec> specs_;
  DeviceMemory weight_memory_, gradient_memory_;
  std::vector<DeviceMemory> state_memory_;  // [specs]
  std::vector<Entry> entries_;              // [parameters]
  std::vector<View> states_;                // [parameters · specs]
  std::uint64_t version_ = 0;
};

}  // namespace

std::unique_ptr<DataParallel> make_single_replica() { return std::make_unique<SingleReplica>(); }

}  // namespace espalier
