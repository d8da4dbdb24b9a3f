// A data-parallel strategy that is forwarded to another, with a hook after each reduction: for gradients that no batch
// would give.
#pragma once

#include <functional>
#include <utility>

#include "espalier/parallel/data.hpp"

namespace espalier::testing_support {

class HookedData final : public DataParallel {
 public:
  explicit HookedData(DataParallel& inner) : inner_(inner) {}

  /// Called when a reduction is over; gradient(p, 0).where is where the strategy keeps what it reduced.
  std::function<void(Do)> after_reduce;

  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override {
    return inner_.plan(plan, optimizer);
  }
  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override {
    inner_.bind(plan, optimizer, backend);
  }
  void begin(std::span<const LayerUse> uses, int micro_batches) override { inner_.begin(uses, micro_batches); }
  void acquire(int layer, Need need, Stream& stream) override { inner_.acquire(layer, need, stream); }
  void release(int layer, Need need) override { inner_.release(layer, need); }
  View weight(int parameter) const override { return inner_.weight(parameter); }
  std::uint64_t weight_version() const override { return inner_.weight_version(); }
  GradientSlot gradient(int parameter, int micro_batch) override { return inner_.gradient(parameter, micro_batch); }
  void written(int layer, int micro_batch, Half half, Stream& stream) override {
    inner_.written(layer, micro_batch, half, stream);
  }
  void reduce(Do what, Stream& stream) override {
    inner_.reduce(what, stream);
    if (after_reduce) after_reduce(what);
  }
  void squares(double* slots, Stream& stream) override { inner_.squares(slots, stream); }
  void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) override {
    inner_.step(optimizer, inputs, stream);
  }
  std::vector<StatePiece> state() override { return inner_.state(); }
  void refresh(Stream& stream) override { inner_.refresh(stream); }
  bool replicas_equal() const override { return inner_.replicas_equal(); }
  void sync(Stream& stream) override { inner_.sync(stream); }

 private:
  DataParallel& inner_;
};

}  // namespace espalier::testing_support
