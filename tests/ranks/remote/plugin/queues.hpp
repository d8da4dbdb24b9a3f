// Queues of work that run only while the host waits or polls, in an order that a seed chooses and that respects nothing
// but each queue's own order and the events in it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "memory.hpp"

namespace espalier::remote {

/// What came of trying an item.
enum class Outcome : std::uint8_t {
  done,
  waits_for_event,    ///< of another queue here
  waits_for_network,  ///< of another rank
};

class Queues {
 public:
  using Item = std::function<Outcome()>;

  Queues(Memory& memory, std::uint64_t seed) : memory_(memory), seed_(seed), random_(seed) {}

  /// Makes a queue. @param name  for messages.
  int add(std::string name);
  /// Forgets a queue that is empty, or what is in it.
  void remove(int queue);
  /// @param what  a literal, for messages.
  void push(int queue, const char* what, Item item);
  bool empty(int queue) const { return queues_[static_cast<std::size_t>(queue)].items.empty(); }
  /// Items of all queues.
  std::size_t waiting() const;

  /// Runs items of any queues until `queue` is empty.
  /// @throws DeviceError when queues wait for each other, or for other ranks for too long.
  void drain(int queue);
  /// Runs a few items, perhaps none; does nothing when called from an item.
  void poll();

  Memory& memory() { return memory_; }

 private:
  struct Entry {
    const char* what;
    Item item;
  };
  struct Queue {
    std::string name;
    std::deque<Entry> items;
    std::uint64_t priority = 0;
  };

  /// Tries the queues in an order of the seed until an item is done.
  Outcome run_one();
  std::string heads() const;

  Memory& memory_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  std::vector<std::size_t> order_;
  int items_ = 0;     // that the present order is still good for
  int stubborn_ = 0;  // times to wait for the network yet
  bool running_ = false;
};

}  // namespace espalier::remote
