// A data-parallel strategy that averages every H steps: each rank trains alone in between (LocalSGD, Stich 2019,
// arXiv:1805.09767).
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "espalier/parallel/data.hpp"

namespace espalier::testing_support {

/// A single replica on each rank; every `interval` steps weights and state become the mean over the group.
class LocalSgd final : public DataParallel {
 public:
  LocalSgd(Communicator& group, int interval) : group_(group), interval_(interval), replica_(make_single_replica()) {}

  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override {
    return replica_->plan(plan, optimizer);
  }
  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override {
    replica_->bind(plan, optimizer, backend);
    backend_ = &backend;
    parameters_ = plan.parameters;
    pieces_ = replica_->state();
  }

  void acquire(int layer, Need need, Stream& stream) override { replica_->acquire(layer, need, stream); }
  void release(int layer, Need need) override { replica_->release(layer, need); }
  View weight(int parameter) const override { return replica_->weight(parameter); }
  std::uint64_t weight_version() const override { return replica_->weight_version(); }
  GradientSlot gradient(int parameter, int micro_batch) override { return replica_->gradient(parameter, micro_batch); }
  void written(int layer, int micro_batch, Half half, Stream& stream) override {
    replica_->written(layer, micro_batch, half, stream);
  }

  /// The step's factor divides by the samples of all ranks; a rank that steps alone has only its own share of them.
  void reduce(Do what, Stream& stream) override {
    replica_->reduce(what, stream);
    if (what != Do::reduce_gradients) return;
    scale_gradients(group_.size(), stream);
  }

  /// The mean over the ranks of their own gradients' squares: what the world's sum makes of it is the mean square norm.
  void squares(double* slots, Stream& stream) override {
    const double root = std::sqrt(static_cast<double>(group_.size()));
    scale_gradients(1 / root, stream);
    replica_->squares(slots, stream);
    scale_gradients(root, stream);
  }

  void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) override {
    replica_->step(optimizer, inputs, stream);
    apart_ += 1;
    if (apart_ >= interval_) sync(stream);
  }

  std::vector<StatePiece> state() override {
    std::vector<StatePiece> pieces = replica_->state();
    for (StatePiece& piece : pieces) piece.writes = group_.rank() == 0;
    return pieces;
  }
  void refresh(Stream& stream) override {
    replica_->refresh(stream);
    apart_ = 0;
  }
  bool replicas_equal() const override { return apart_ == 0 || group_.size() == 1; }

  void sync(Stream& stream) override {
    if (replicas_equal()) return;
    for (const StatePiece& piece : pieces_) {
      group_.finish(group_.start_all_reduce(piece.data, Reduce::sum_rank_order, stream), stream);
      backend_->kernels().update->scale(piece.data, 1.0 / group_.size(), nullptr, nullptr, stream);
    }
    refresh(stream);
  }

 private:
  void scale_gradients(double by, Stream& stream) {
    for (int p = 0; p < static_cast<int>(parameters_.size()); ++p) {
      backend_->kernels().update->scale(replica_->gradient(p, 0).where, by, nullptr, nullptr, stream);
    }
  }

  Communicator& group_;
  int interval_;
  int apart_ = 0;  // steps since all ranks were equal
  std::unique_ptr<DataParallel> replica_;
  Backend* backend_ = nullptr;
  std::span<const LocalParameter> parameters_;
  std::vector<StatePiece> pieces_;
};

}  // namespace espalier::testing_support
