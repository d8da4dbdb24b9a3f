#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_emulation/block.hpp"
#include "random.hpp"

namespace cuda_emulation {

/// "file:line"
std::string place(Location at);

enum class Status : std::uint8_t { ready, barrier, collective, done };

struct Thread : ThreadState {
  boost::context::fiber fiber;
  Status status = Status::ready;
  Location waits_at;
  std::array<std::uint32_t, kWarp> clock{};  ///< what this lane knows of the warp's other lanes
  const void* stack = nullptr;               ///< for the address sanitizer
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

/// Lanes of one mask that wait for each other. Two sets of slots: a lane reads the last meeting's while others are in
/// the next one.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  unsigned generation = 0;
  Collective kind = Collective::sync;
  Location at;
  std::uint64_t slots[2][kWarp] = {};
};

/// Runs grids. One launch at a time in the process. Fibers outlive blocks and launches; those that a failed launch
/// leaves in the middle of a kernel are unwound.
class Engine {
 public:
  static Engine& instance();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void run(const char* name, dim3 grid, dim3 block, std::size_t dynamic_bytes, const std::function<void()>& body);

  int barrier(Vote vote, int predicate, Location at);
  const std::uint64_t* meet(unsigned mask, std::uint64_t value, Collective kind, Location at);
  void attach(SharedArray& array, std::size_t element, std::size_t count, Location at);
  SharedArray& dynamic_array(std::size_t element, Location at);
  void touch(SharedArray& array, std::size_t index, bool write, Location at);
  [[noreturn]] void fail(const std::string& what, Location at);

 private:
  struct Stop {};

  Engine() = default;
  ~Engine() { discard_fibers(); }
  void make_fibers(unsigned count);
  void discard_fibers();
  void run_fiber(Thread& thread);
  void start_block(std::uint64_t number);
  void run_block();
  void release_barrier(Location at);
  void resume(Thread& thread);
  void yield(Thread& thread);
  void pause(Thread& thread);
  bool ordered(const Thread& thread, std::uint32_t other, std::uint32_t clock) const;
  void race(const char* what, std::uint32_t other, Location place, const char* access, Location at);
  std::string where() const;
  std::string deadlock() const;

  const char* name_ = "";
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<unsigned> turns_;                 // order in which threads are looked at
  std::vector<std::vector<Meeting>> meetings_;  // of each warp
  unsigned count_ = 0;                          // threads of a block
  unsigned done_ = 0;
  Random random_;

  unsigned at_barrier_ = 0;
  Location barrier_at_;
  Vote barrier_vote_ = Vote::none;
  int barrier_sum_ = 0, barrier_result_ = 0;

  std::uint64_t epoch_ = 0;       // barriers passed in the life of the program
  std::uint64_t generation_ = 0;  // blocks run likewise
  SharedArray dynamic_;
  std::size_t dynamic_bytes_ = 0, static_bytes_ = 0;

  std::string error_;
  bool discarding_ = false;
  boost::context::fiber scheduler_;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace cuda_emulation
