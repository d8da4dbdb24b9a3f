#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.hpp"
#include "espalier/backend.hpp"
#include "train/replicas.hpp"

namespace espalier::app {

/// A number of the run that every rank of the world has alike: seed, learning rate, loss scale.
struct RunNumber {
  std::string name;
  double value = 0;        ///< where it has no home
  double* home = nullptr;  ///< where it is kept and a repair writes it; null: it cannot be repaired
};

/// Kept by pointer; must outlive the guard.
struct GuardParts {
  Grid grid;
  Backend* backend = nullptr;
  DataParallel* data = nullptr;
  const Optimizer* optimizer = nullptr;
  Communicator* world = nullptr;         ///< for host memory
  Communicator* device_world = nullptr;  ///< the same ranks, for device memory: repairs travel over it
  std::span<const LocalParameter> parameters;
};

/// Compares what ranks hold alike by 64-bit hashes (XXH3) of its bytes, between steps: parameters that are replicated
/// drift apart when anything about their updates differs by one bit, and nothing else would tell. All calls are
/// collective over the world.
class ReplicaGuard {
 public:
  explicit ReplicaGuard(const GuardParts& parts);
  ~ReplicaGuard();
  ReplicaGuard(const ReplicaGuard&) = delete;
  ReplicaGuard& operator=(const ReplicaGuard&) = delete;

  /// Things that several ranks hold. 0: there is nothing to compare.
  std::size_t replicated() const { return replicas_.replicated.size(); }
  /// Bytes this rank read for the last check.
  std::size_t bytes() const { return bytes_; }

  /// @param step  finished steps, for the message.
  /// @param numbers  the same names in the same order on all ranks.
  /// @returns "" when all copies agree, or what was repaired.
  /// @throws AgreedError (communication) naming the first difference in logical order and the ranks; with
  ///         GuardAction::repair only what cannot be repaired.
  std::string check(std::int64_t step, std::span<const RunNumber> numbers, GuardAction action);

  std::int64_t checks() const { return checks_; }
  std::int64_t repairs() const { return repairs_; }  ///< checks that repaired something
  double seconds() const { return seconds_; }        ///< of all checks, on this rank

 private:
  /// One thing that is not the same everywhere.
  struct Difference {
    int number = -1;        ///< of the run's numbers; or
    int replicated = -1;    ///< of replicas_.replicated
    std::vector<int> good;  ///< ranks that hold what most hold; on a draw, what the lowest rank holds
    std::vector<int> odd;
  };

  std::vector<Difference> compare(std::span<const RunNumber> numbers);
  void hash_own(std::uint64_t* hashes);
  std::uint64_t hash(const View& view);
  std::uint64_t value_of(int rank, int slot) const {
    return all_[static_cast<std::size_t>(rank) * width_ + static_cast<std::size_t>(slot)];
  }
  void repair(const std::vector<Difference>& differences, std::span<const RunNumber> numbers);
  void send_copy(const Replicated& what, const Difference& difference);
  std::string text_of(const Difference& difference, std::span<const RunNumber> numbers) const;
  std::string message(std::int64_t step, const std::vector<Difference>& differences,
                      std::span<const RunNumber> numbers) const;
  std::string group_of(const std::vector<int>& ranks) const;

  GuardParts parts_;
  Replicas replicas_;
  std::vector<int> everyone_;        // ranks of the world
  std::size_t width_ = 0;            // slots of a rank: numbers, then copies
  std::vector<std::uint64_t> mine_;  // [width]
  std::vector<std::uint64_t> all_;   // [world · width]
  std::vector<std::byte> staging_;   // where the host cannot read device memory
  struct HashState;
  std::unique_ptr<HashState> state_;
  std::int64_t last_equal_ = -1;  // step of the last check without a difference
  std::int64_t checks_ = 0, repairs_ = 0;
  std::size_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace espalier::app
