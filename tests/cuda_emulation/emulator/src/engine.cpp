#include "engine.hpp"

#include <algorithm>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <map>
#include <mutex>
#include <numeric>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {
namespace {

// Frames of kernels are small; the address sanitizer makes them several times larger.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

bool same(Location a, Location b) { return a.line == b.line && std::string_view(a.file) == b.file; }
std::string triple(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

/// Remembers where a thread's stack lies.
class StackOfThread {
 public:
  explicit StackOfThread(Thread& thread) : thread_(&thread) {}
  boost::context::stack_context allocate() {
    const boost::context::stack_context stack = memory_.allocate();
    thread_->stack = static_cast<std::byte*>(stack.sp) - stack.size;
    thread_->stack_bytes = stack.size;
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) { memory_.deallocate(stack); }

 private:
  Thread* thread_;
  boost::context::protected_fixedsize_stack memory_{kStackBytes};
};

}  // namespace

std::string place(Location at) { return std::string(at.file) + ":" + std::to_string(at.line); }

ThreadState* current = nullptr;
uint3 block_index{};
dim3 block_size, grid_size;

Engine& Engine::instance() {
  static Engine engine;
  return engine;
}

void Engine::run(const char* name, dim3 grid, dim3 block, std::size_t dynamic_bytes,
                 const std::function<void()>& body) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  name_ = name;
  body_ = &body;
  grid_size = grid;
  block_size = block;
  dynamic_bytes_ = dynamic_bytes;
  count_ = block.x * block.y * block.z;
  random_ = Random(options().seed);
  make_fibers(count_);
  meetings_.resize((count_ + kWarp - 1) / kWarp);
  turns_.resize(count_);
  std::iota(turns_.begin(), turns_.end(), 0u);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::vector<std::uint64_t> numbers(blocks);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  if (options().order == Order::reverse) {
    std::reverse(turns_.begin(), turns_.end());
    std::reverse(numbers.begin(), numbers.end());
  } else if (options().order == Order::random) {
    random_.shuffle(numbers);
  }
  for (const std::uint64_t number : numbers) {
    start_block(number);
    try {
      run_block();
    } catch (...) {
      current = nullptr;
      discard_fibers();
      throw;
    }
  }
  current = nullptr;
}

void Engine::make_fibers(unsigned count) {
  if (threads_.size() >= count) return;
  discard_fibers();
  threads_.resize(count);  // fibers point to their threads: never grown in place
  for (Thread& thread : threads_) {
    thread.fiber = boost::context::fiber(
        std::allocator_arg, StackOfThread(thread), [this, &thread](boost::context::fiber&& scheduler) {
          scheduler_ = std::move(scheduler);
#ifdef __SANITIZE_ADDRESS__
          __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
          while (!discarding_) {
            run_fiber(thread);
            yield(thread);
          }
#ifdef __SANITIZE_ADDRESS__
          __sanitizer_start_switch_fiber(nullptr, scheduler_stack_, scheduler_stack_bytes_);
#endif
          return std::move(scheduler_);
        });
  }
}

void Engine::discard_fibers() {
  discarding_ = true;
  for (Thread& thread : threads_) resume(thread);
  discarding_ = false;
  threads_.clear();
}

void Engine::run_fiber(Thread& thread) {
  try {
    (*body_)();
  } catch (const Stop&) {
    // fail() has stored the message, or the fiber is discarded
  } catch (const std::exception& error) {
    error_ = where() + error.what();
  }
  thread.status = Status::done;
}

void Engine::start_block(std::uint64_t number) {
  const std::uint64_t x = grid_size.x, y = grid_size.y;
  block_index = {static_cast<unsigned>(number % x), static_cast<unsigned>(number / x % y),
                 static_cast<unsigned>(number / x / y)};
  ++epoch_;
  ++generation_;
  done_ = at_barrier_ = 0;
  static_bytes_ = 0;
  error_.clear();
  for (unsigned i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    thread.index = {i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y};
    thread.linear = i;
    thread.lane = i % kWarp;
    thread.warp = i / kWarp;
    thread.status = Status::ready;
    thread.clock.fill(0);
    thread.clock[thread.lane] = 1;
  }
  for (std::vector<Meeting>& warp : meetings_) warp.clear();
}

void Engine::run_block() {
  while (done_ < count_) {
    bool moved = false;
    if (options().order == Order::random) random_.shuffle(turns_);
    for (const unsigned turn : turns_) {
      Thread& thread = threads_[turn];
      if (thread.status != Status::ready) continue;
      moved = true;
      current = &thread;
      resume(thread);
      if (!error_.empty()) throw Error(error_);
      if (thread.status == Status::done) ++done_;
    }
    if (!moved) throw Error(deadlock());
  }
}

void Engine::resume(Thread& thread) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, thread.stack, thread.stack_bytes);
#endif
  thread.fiber = std::move(thread.fiber).resume();
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Engine::yield([[maybe_unused]] Thread& thread) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&thread.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
#endif
  scheduler_ = std::move(scheduler_).resume();
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(thread.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

/// For a thread in the middle of a kernel.
void Engine::pause(Thread& thread) {
  yield(thread);
  if (discarding_) throw Stop{};
}

int Engine::barrier(Vote vote, int predicate, Location at) {
  Thread& thread = *static_cast<Thread*>(current);
  if (at_barrier_ == 0) {
    barrier_at_ = at;
    barrier_vote_ = vote;
    barrier_sum_ = 0;
  } else if (!same(barrier_at_, at) || barrier_vote_ != vote) {
    fail("a block barrier in divergent code: " + std::to_string(at_barrier_) + " threads wait at " + place(barrier_at_),
         at);
  }
  barrier_sum_ += predicate != 0 ? 1 : 0;
  thread.waits_at = at;
  if (++at_barrier_ + done_ < count_) {
    thread.status = Status::barrier;
    pause(thread);
  } else {
    release_barrier(at);
  }
  return barrier_result_;
}

void Engine::release_barrier(Location at) {
  if (done_ > 0) fail("a block barrier that " + std::to_string(done_) + " threads have returned without", at);
  const int threads = static_cast<int>(count_);
  barrier_result_ = barrier_vote_ == Vote::all   ? barrier_sum_ == threads
                    : barrier_vote_ == Vote::any ? barrier_sum_ > 0
                                                 : barrier_sum_;
  at_barrier_ = 0;
  ++epoch_;
  for (unsigned i = 0; i < count_; ++i) {
    if (threads_[i].status == Status::barrier) threads_[i].status = Status::ready;
  }
}

const std::uint64_t* Engine::meet(unsigned mask, std::uint64_t value, Collective kind, Location at) {
  Thread& thread = *static_cast<Thread*>(current);
  if ((mask >> thread.lane & 1u) == 0) fail("lane " + std::to_string(thread.lane) + " is not in its own mask", at);
  std::vector<Meeting>& warp = meetings_[thread.warp];
  if (warp.capacity() < 64) warp.reserve(64);  // lanes that wait hold pointers into it
  Meeting* meeting = nullptr;
  for (Meeting& known : warp) {
    if (known.mask == mask) meeting = &known;
  }
  if (meeting == nullptr) {
    if (warp.size() == warp.capacity()) fail("a warp that uses more than 64 different masks", at);
    meeting = &warp.emplace_back();
    meeting->mask = mask;
  }
  if (meeting->arrived == 0) {
    meeting->kind = kind;
    meeting->at = at;
  } else if (meeting->kind != kind || !same(meeting->at, at)) {
    fail("a warp collective in divergent code: other lanes of the mask wait at " + place(meeting->at), at);
  }
  std::uint64_t* const slots = meeting->slots[meeting->generation % 2];
  slots[thread.lane] = value;
  meeting->arrived |= 1u << thread.lane;
  thread.waits_at = at;
  if (meeting->arrived != mask) {
    thread.status = Status::collective;
    pause(thread);
    return slots;
  }
  meeting->arrived = 0;
  ++meeting->generation;
  std::array<std::uint32_t, kWarp> known{};
  const auto each = [&](auto&& action) {
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1u) != 0) action(threads_[thread.warp * kWarp + lane], lane);
    }
  };
  if (options().races) {
    each([&](Thread& other, unsigned) {
      for (unsigned lane = 0; lane < kWarp; ++lane) known[lane] = std::max(known[lane], other.clock[lane]);
    });
  }
  each([&](Thread& other, unsigned lane) {
    if (options().races) {
      other.clock = known;
      ++other.clock[lane];
    }
    if (&other != &thread) other.status = Status::ready;
  });
  return slots;
}

std::string Engine::where() const {
  std::string text = std::string("kernel ") + name_ + ", block " + triple(block_index.x, block_index.y, block_index.z);
  if (current != nullptr) text += ", thread " + triple(current->index.x, current->index.y, current->index.z);
  return text + ": ";
}

void Engine::fail(const std::string& what, Location at) {
  error_ = where() + what + " [" + place(at) + "]";
  throw Stop{};
}

std::string Engine::deadlock() const {
  struct Group {
    unsigned threads = 0, first = 0;
  };
  std::map<std::string, Group> groups;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    const std::string key = thread.status == Status::done ? "have returned"
                            : thread.status == Status::barrier
                                ? "wait at the block barrier at " + place(thread.waits_at)
                                : "wait in the warp collective at " + place(thread.waits_at);
    Group& group = groups[key];
    if (group.threads++ == 0) group.first = i;
  }
  std::string text =
      std::string("kernel ") + name_ + ", block " + triple(block_index.x, block_index.y, block_index.z) + ": deadlock";
  for (const auto& [key, group] : groups) {
    text += "; " + std::to_string(group.threads) + " threads (the first is " + std::to_string(group.first) + ") " + key;
  }
  return text;
}

int barrier(Vote vote, int predicate, Location at) { return Engine::instance().barrier(vote, predicate, at); }
const std::uint64_t* meet(unsigned mask, std::uint64_t value, Collective kind, Location at) {
  return Engine::instance().meet(mask, value, kind, at);
}
void attach(SharedArray& array, std::size_t element, std::size_t count, Location at) {
  Engine::instance().attach(array, element, count, at);
}
SharedArray& dynamic_array(std::size_t element, Location at) { return Engine::instance().dynamic_array(element, at); }
void touch(SharedArray& array, std::size_t index, bool write, Location at) {
  Engine::instance().touch(array, index, write, at);
}
void fail(const std::string& what, Location at) { Engine::instance().fail(what, at); }

}  // namespace cuda_emulation
