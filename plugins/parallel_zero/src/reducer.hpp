#pragma once

#include <array>
#include <cstdint>

#include "layout.hpp"

namespace espalier::parallel_zero {

/// Where a sum over the data group ends up.
enum class Sums : std::uint8_t {
  everywhere,  ///< whole, in place, on every rank (stage 0)
  own_range,   ///< in place, each rank's own shard (stage 1; whole for matrices with an owner)
  shards,      ///< in memory of shards, onto the sums of the micro-batches before (stages 2 and 3)
};

/// Sums over the data group that are on their way. They are finished oldest first, so that micro-batches are added in
/// their order. Runs on the data lane.
class Reducer {
 public:
  struct Setup {
    const Layout* layout = nullptr;
    Communicator* group = nullptr;
    Backend* backend = nullptr;
    Sums sums = Sums::everywhere;
    DType message = DType::f32;         ///< f32: gradients travel from where they are
    std::byte* wire = nullptr;          ///< for another dtype: `segments` buckets of `segment_elements`
    std::int64_t segment_elements = 0;  ///< a multiple of the ranks
    int segments = 1;
    std::byte* shards = nullptr;  ///< f32, a shard of every buffer in their order
  };

  void bind(const Setup& setup);
  /// Starts the sum of one buffer.
  /// @param gradient  [buffer.elements] f32, not to be touched before the sum is finished, unless messages have another
  ///                  dtype and sums go to shards.
  /// @param add  to the shard's sum, instead of overwriting it.
  /// @returns how many sums have been started: what finish_until takes.
  std::uint64_t start(int buffer, const View& gradient, bool add);
  void finish_until(std::uint64_t count);
  void finish_all() { finish_until(started_); }
  bool idle() const { return finished_ == started_; }
  /// The shard's sums of a buffer.
  View shard(const Buffer& buffer) const;

 private:
  struct Flight {
    Request request;
    const Buffer* buffer = nullptr;
    View gradient;
    View message;            ///< empty: the gradient itself
    std::int64_t begin = 0;  ///< range of each shard that is in the message
    std::int64_t end = 0;
    bool add = false;
  };

  bool everywhere(const Buffer& buffer) const;
  void start_converted(const Buffer& buffer, const View& gradient, bool add);
  Flight& next_flight();
  void finish_oldest();

  Setup setup_;
  std::array<Flight, 8> flights_;  // each may take a round of MPI scratch
  std::uint64_t started_ = 0, finished_ = 0;
};

}  // namespace espalier::parallel_zero
