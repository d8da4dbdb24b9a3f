#pragma once

#include <vector>

#include "layout.hpp"

namespace espalier::parallel_zero {

/// Stages 0 to 2: working weights that are whole on every rank, and how they become equal after an update. With overlap
/// a layer is gathered when it is first used, and some layers ahead of it, so that the next forward hides it.
class WholeWeights {
 public:
  struct Setup {
    const Layout* layout = nullptr;
    Communicator* group = nullptr;
    Device* device = nullptr;
    DType working = DType::f32;
    std::byte* memory = nullptr;  ///< all buffers
    bool sharded = false;         ///< each rank updates its shard; else all of it, but for matrices with an owner
  };

  void bind(const Setup& setup);
  /// The owners have updated their parts.
  void changed() {
    state_.assign(state_.size(), State::stale);
    next_ = 0;
  }
  bool equal() const { return next_ == state_.size() && flying_ == 0; }
  /// Makes the weights of a layer equal, and starts on those that follow.
  void acquire(int layer, Stream& stream);
  /// All of them.
  void gather(Stream& stream);

 private:
  enum class State : std::uint8_t { equal, flying, stale };
  static constexpr int kFlying = 6;  // groups on their way at once

  void start(std::size_t group, Stream& stream);
  void finish(std::size_t group, Stream& stream);
  void start_next(Stream& stream);

  Setup setup_;
  std::vector<State> state_;       ///< [groups]
  std::vector<Request> requests_;  ///< [buffers]
  std::size_t next_ = 0;           ///< groups before it are not stale
  int flying_ = 0;
};

}  // namespace espalier::parallel_zero
