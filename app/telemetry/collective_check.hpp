#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "espalier/communicator.hpp"
#include "espalier/parallel/data.hpp"

namespace espalier::app {

/// What the checking communicators of a run share: where the run is, what its buffers are called. Training thread only.
class CollectiveCheck {
 public:
  /// @param patience  seconds a rank waits for the others before it says so and ends the job; 0: for ever.
  explicit CollectiveCheck(double patience) : patience_(patience) {}

  void begin_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }
  double patience() const { return patience_; }

  /// From now on the memory of `view` has this name; what it was called before is forgotten.
  void name_buffer(const View& view, std::string name);
  /// Name of the buffer in which the address lies, or "".
  std::string_view name_at(const void* address) const;

 private:
  struct Range {
    const std::byte* end;
    std::string name;
  };
  double patience_;
  std::int64_t step_ = 0;
  std::map<const std::byte*, Range> ranges_;  // by first byte; disjoint
};

/// Before each collective of `inner` all ranks of the group tell each other what they are about to do: verb, elements,
/// dtype, way of reducing, root, step, and the buffer's name where it is known. Where that differs the job ends, and
/// the message says step, group, which operation of the group in the step it is, and what each rank asked for. Sends
/// and receives pass unchecked (lists of instructions are checked when they are made). Every collective waits for the
/// whole group: for finding faults, not for speed.
/// @param side  the same ranks in the same order, for host memory, used for nothing else.
std::unique_ptr<Communicator> make_checking_communicator(std::unique_ptr<Communicator> inner,
                                                         std::unique_ptr<Communicator> side,
                                                         std::shared_ptr<CollectiveCheck> check);

/// Forwards to `inner` and tells the check what gradients and working weights are called, as they are asked for.
class NamedData final : public DataParallel {
 public:
  NamedData(DataParallel& inner, std::shared_ptr<CollectiveCheck> check) : inner_(inner), check_(std::move(check)) {}

  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override {
    return inner_.plan(plan, optimizer);
  }
  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override;
  void begin(std::span<const LayerUse> uses, int micro_batches) override { inner_.begin(uses, micro_batches); }
  void acquire(int layer, Need need, Stream& stream) override { inner_.acquire(layer, need, stream); }
  void release(int layer, Need need) override { inner_.release(layer, need); }
  View weight(int parameter) const override;
  std::uint64_t weight_version() const override { return inner_.weight_version(); }
  GradientSlot gradient(int parameter, int micro_batch) override;
  void written(int layer, int micro_batch, Half half, Stream& stream) override {
    inner_.written(layer, micro_batch, half, stream);
  }
  void reduce(Do what, Stream& stream) override { inner_.reduce(what, stream); }
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
  std::shared_ptr<CollectiveCheck> check_;
  std::span<const LocalParameter> parameters_;
};

}  // namespace espalier::app
