#pragma once

#include <string_view>
#include <vector>

#include "espalier/host.hpp"
#include "espalier/parallel/data.hpp"
#include "gathered.hpp"
#include "layout.hpp"
#include "options.hpp"
#include "reducer.hpp"
#include "slots.hpp"
#include "whole_weights.hpp"

namespace espalier::parallel_zero {

/// ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054) over buffers of one layer, half and class, all sums in rank order.
///
/// | stage | on every rank | reduced |
/// | 0 | everything; updates all of it, in the same calls as the owners would | once a step |
/// | 1 | weights, gradients; its shard of optimizer state | once a step |
/// | 2 | weights; its shard of the rest | after every micro-batch (reduce = "step": as 1) |
/// | 3 | its shard of everything; layers in use are gathered | after every micro-batch |
///
/// A group of one shards nothing: stages 1 to 3 are the same there.
class Zero final : public DataParallel {
 public:
  Zero(const ConfigView& config, HostContext& host);

  StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const override;
  void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) override;

  void begin(std::span<const LayerUse> uses, int micro_batches) override;
  void acquire(int layer, Need need, Stream& stream) override;
  void release(int layer, Need need) override;
  View weight(int parameter) const override;
  std::uint64_t weight_version() const override { return shards_weights() ? 0 : version_; }

  GradientSlot gradient(int parameter, int micro_batch) override;
  void written(int layer, int micro_batch, Half half, Stream& stream) override;
  void reduce(Do what, Stream& stream) override;
  void squares(double* slots, Stream& stream) override;
  void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) override;

  std::vector<StatePiece> state() override;
  void refresh(Stream& stream) override;
  bool replicas_equal() const override { return data_.size() == 1 || shards_weights() || whole_weights_.equal(); }
  void sync(Stream& stream) override;

 private:
  /// The part of one parameter that lies in one shard: what one call of the optimizer updates.
  struct Block {
    const Parameter* parameter = nullptr;
    int position = 0;  ///< of the parameter in the plan
    int buffer = 0;
    std::int64_t begin = 0;  ///< flat range of the local parameter
    std::int64_t end = 0;
    bool writes = false;  ///< whether this rank writes it into checkpoints
    bool whole = false;   ///< a matrix that is split over the tensor group, all of it: [begin, end) is logical
    View gradient, working, master;
    std::size_t first_state = 0;  ///< in states_
  };
  /// A matrix that is split over the tensor group and updated as a whole (Unit::tensor), on the data rank that owns it:
  /// every tensor rank has a part of gradient and weights, one has the state.
  struct Split {
    int position = 0;  ///< of the parameter in the plan
    int buffer = 0;
    int block = -1;          ///< of all of it; -1: another tensor rank's
    bool writes = false;     ///< whether this rank writes its weights into checkpoints, where they are the true ones
    View gradient, weights;  ///< local shape; f32, working type
  };
  /// A range of gradients whose squares this rank counts.
  struct Counted {
    int index = 0;  ///< slot of the parameter
    View gradient;
  };
  /// Elements that plan() and bind() reserve.
  struct Sizes {
    std::int64_t weights = 0, gradients = 0;
    std::int64_t wire = 0;     ///< f32 elements: buckets of messages, or what the other end of the tie sends
    std::int64_t matrix = 0;   ///< f32: the gradient of one whole matrix at its owner
    std::int64_t logical = 0;  ///< elements: gradient and weights of one matrix that is split over the tensor group
    std::int64_t part = 0;     ///< f32: one rank's part of it, on its way
    SlotPlan open, gathered;   ///< f32; working type
  };

  // zero.cpp
  bool shards_state() const { return options_.stage >= 1; }
  bool shards_gradients() const { return data_.size() > 1 && options_.stage >= 2 && !options_.reduce_once; }
  bool shards_weights() const { return data_.size() > 1 && options_.stage == 3; }
  bool ties() const;
  void bind_views();
  void bind_movers();
  void spread_weights(bool at_once, Stream& stream);
  void update(const Block& block, Optimizer& optimizer, const StepInputs& inputs, Stream& stream);

  // matrices.cpp
  void check_parts(const LocalParameter& local) const;
  void update_matrices(Optimizer& optimizer, const StepInputs& inputs, Stream& stream);
  void update_split(const Split& split, Optimizer& optimizer, const StepInputs& inputs, Stream& stream);
  void refresh_splits(Stream& stream);
  View whole_view(const Split& split, const DeviceMemory& memory, DType dtype) const;
  void collect(const Split& split, const View& own, const View& whole, Stream& lane);
  void give_back(const Split& split, const View& whole, Stream& lane);

  // plan.cpp
  void check(const StatePlan& plan, const Optimizer& optimizer) const;
  void check_tied_order(std::span<const Instruction> schedule) const;
  DType message(const Precision& precision) const { return options_.reduce_dtype.value_or(precision.message); }
  std::int64_t reduced_elements(const Buffer& buffer) const;
  int segments() const { return options_.overlap ? 4 : 1; }
  std::int64_t bucket_elements(const Layout& layout, DType message) const;
  Sizes sizes(const Layout& layout, DType message) const;
  std::int64_t state_elements(const Layout& layout, const StateSpec& spec) const;

  // gradients.cpp
  View open_gradient(const Buffer& buffer);
  void reduce_group(int group, Stream& stream);
  void start_whole(int group, Stream& stream);
  View whole_gradient(const Buffer& buffer) const;
  View reduced_gradient(const Buffer& buffer) const;
  void finish_gradients(Stream& stream);
  void reduce_partial(Stream& lane);
  void reduce_tied(Stream& lane);

  // state.cpp
  void make_blocks(const StatePlan& plan, const Optimizer& optimizer);
  void add_block(const Buffer& buffer, int number, int shard, const Item& item, std::int64_t state_at,
                 const LocalParameter& local, const Optimizer& optimizer);
  void add_split(const Buffer& buffer, int number, std::int64_t state_at, const LocalParameter& local);
  void bind_states(Block& block, std::int64_t like_at, std::int64_t elements, int shard, const Shape* shape);
  void count_squares();
  std::int64_t kept_elements(const Buffer& buffer, int shard) const;
  bool counts(const Buffer& buffer, const LocalParameter& local) const;
  void fill_initial_state(Device& device);
  bool keeps_master() const;

  Options options_;
  HostContext& host_;
  Communicator &data_, &tensor_, &pipeline_;
  Backend* backend_ = nullptr;
  std::span<const LocalParameter> parameters_;
  std::vector<StateSpec> specs_;
  DType working_ = DType::f32;
  DType message_ = DType::f32;
  Layout layout_;
  Sizes sizes_;
  std::vector<std::int64_t> owned_at_;  ///< [buffers] first element of what this rank owns, in the memory of all that
  DeviceMemory weight_memory_, gradient_memory_, wire_memory_, open_memory_, gathered_memory_, matrix_memory_;
  DeviceMemory whole_gradient_memory_, whole_weight_memory_, part_memory_;  ///< of one matrix over the tensor group
  std::vector<DeviceMemory> state_memory_;                                  ///< [specs]
  std::vector<View> weights_, gradients_;  ///< [parameters], local shapes; where they are whole on every rank
  std::vector<bool> written_;              ///< [parameters]: in this step, or micro-batch where gradients are sharded
  std::vector<bool> summed_;               ///< [buffers]: the shard holds a sum of this step
  Reducer reducer_;
  Gathered gathered_;
  WholeWeights whole_weights_;
  int micro_batches_ = 0;                 ///< of this step; 0: not known
  std::vector<int> open_slot_;            ///< [groups] of the memory of open gradients, −1: not open
  std::vector<std::uint64_t> slot_sums_;  ///< [slots] sums that must be finished before the slot is used again
  std::vector<int> next_slot_;            ///< [pools]
  std::vector<Block> blocks_;
  std::vector<Split> splits_;
  std::vector<Counted> counted_;
  std::vector<View> states_;  ///< [blocks · specs]
  std::uint64_t version_ = 0;
};

}  // namespace espalier::parallel_zero
