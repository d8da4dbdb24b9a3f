#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "espalier/host.hpp"
#include "espalier/parallel/data.hpp"
#include "layout.hpp"
#include "options.hpp"

namespace espalier::parallel_zero {

/// ZeRO stages 0 and 1 (Rajbhandari et al. 2020, arXiv:1910.02054): whole weights and whole FP32 accumulators on every
/// rank, reduced once a step in rank order. Stage 0 keeps all optimizer state on all ranks and updates all of it; stage
/// 1 keeps and updates one shard a rank and gathers the weights. Both work through the same blocks, so they are equal
/// to the bit.
class Zero final : public DataParallel {
 public:
  Zero(const ConfigView& config, HostContext& host);

  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override;
  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override;

  void acquire(int, Stream&) override {}
  void release(int) override {}
  View weight(int parameter) const override { return weights_[static_cast<std::size_t>(parameter)]; }
  std::uint64_t weight_version() const override { return version_; }

  GradientSlot gradient(int parameter, int micro_batch) override;
  void written(int, int, Stream&) override {}
  void reduce(Do what, Stream& stream) override;
  void squares(double* slots, Stream& stream) override;
  void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) override;

  std::vector<StatePiece> state() override;
  void refresh(Stream& stream) override;
  bool replicas_equal() const override { return true; }
  void sync(Stream&) override {}

 private:
  /// The part of one parameter that lies in one shard: what one call of the optimizer updates.
  struct Block {
    const Parameter* parameter = nullptr;
    int position = 0;        ///< of the parameter in the plan
    int shard = 0;           ///< data rank that owns it
    std::int64_t begin = 0;  ///< flat range of the local parameter
    std::int64_t end = 0;
    bool counts = false;  ///< whether this rank counts its squares and writes it into checkpoints
    View gradient, working, master;
    std::size_t first_state = 0;  ///< in states_
  };

  /// Several operations in flight on the data lane; the oldest is finished when there are too many.
  class Window;

  // zero.cpp
  void check(const StatePlan& plan, const Optimizer& optimizer) const;
  DType message(const Precision& precision) const { return options_.reduce_dtype.value_or(precision.message); }
  std::int64_t scratch_elements(const Layout& layout, DType message) const;
  bool holds(const Buffer& buffer, int shard) const;
  bool ties() const;
  View buffer_view(const DeviceMemory& memory, const Buffer& buffer, DType dtype) const;
  View own_range(const Buffer& buffer, const View& whole) const;
  void gather_weights(Stream& stream);

  // state.cpp
  std::int64_t state_elements(const Layout& layout, const StateSpec& spec) const;
  void make_blocks(const StatePlan& plan, const Optimizer& optimizer);
  void fill_initial_state(Device& device);
  bool keeps_master() const;

  // reduce.cpp
  void reduce_data(Stream& stream);
  void reduce_converted(const Buffer& buffer, Stream& stream);
  void reduce_partial(Stream& stream);
  void reduce_tied(Stream& stream);

  Options options_;
  HostContext& host_;
  Communicator &data_, &tensor_, &pipeline_;
  Backend* backend_ = nullptr;
  std::span<const LocalParameter> parameters_;
  std::vector<StateSpec> specs_;
  DType working_ = DType::f32;
  DType message_ = DType::f32;
  Layout layout_;
  DeviceMemory weight_memory_, gradient_memory_, scratch_memory_;
  std::vector<DeviceMemory> state_memory_;  ///< [specs]
  std::vector<View> weights_, gradients_;   ///< [parameters], local shapes
  std::vector<bool> written_;               ///< [parameters]: in this step
  std::vector<Block> blocks_;
  std::vector<View> states_;  ///< [blocks · specs]
  std::uint64_t version_ = 0;
};

class Zero::Window {
 public:
  Window(Communicator& group, Stream& lane) : group_(group), lane_(lane) {}
  void add(Request request) {
    Request& oldest = open_[next_++ % open_.size()];
    group_.finish(oldest, lane_);
    oldest = request;
  }
  void finish_all() {
    for (std::size_t i = 0; i < open_.size(); ++i) add({});
  }

 private:
  Communicator& group_;
  Stream& lane_;
  std::array<Request, 4> open_{};
  std::size_t next_ = 0;
};

}  // namespace espalier::parallel_zero
