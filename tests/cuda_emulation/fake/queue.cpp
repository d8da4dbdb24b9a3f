#include "queue.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "controls.hpp"
#include "memory.hpp"
#include "state.hpp"

namespace fake {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Scheduler {
 public:
  static Scheduler& get() {
    static Scheduler* scheduler = new Scheduler;
    return *scheduler;
  }

  std::uint64_t draw() {  // SplitMix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// One piece of work; false when none can run now.
  bool run_one() {
    if (running_) violation("a host function or step waits for the device, which waits for it");
    CUstream_st* stream = choose();
    if (stream == nullptr) return false;
    Item& item = stream->items.front();
    if (run(item)) {
      stream->items.pop_front();
      unready_.clear();  // what had to wait may go on
    } else {
      unready_.insert(stream);
    }
    return true;
  }

  template <class Done>
  void run_until(Done&& done) {
    draw_weights();
    while (!done()) {
      if (run_one()) continue;
      if (unready_.empty()) violation("the host waits for work that can never run:" + blocked());
      unready_.clear();
      sched_yield();  // communication: other ranks have to get on
    }
    close();
  }

  /// What may or may not have happened since the host last looked.
  bool pass_time() {
    draw_weights();
    bool any = false;
    for (std::uint64_t n = draw() % 4; n > 0; --n) any = run_one() || any;
    unready_.clear();
    close();
    return any;
  }

  std::string_view running() const { return running_ ? std::string_view(*running_) : std::string_view(); }

  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  CUstream_st* capturing = nullptr;
  int stream_count = 0;
  std::uint64_t waits = 0;
  std::uint64_t ignored_wait = number_from("ESPALIER_FAKE_CUDA_IGNORE_WAIT", 0);
  cudaError_t error = cudaSuccess;
  std::string fault;
  std::string fault_name;  ///< of the work that is made to fault

  void seed(std::uint64_t number) { state_ = number; }

 private:
  Scheduler() : state_(number_from("ESPALIER_FAKE_CUDA_SEED", 0)) {
    if (const char* name = std::getenv("ESPALIER_FAKE_CUDA_FAULT")) fault_name = name;
  }

  /// Streams run ahead of and behind each other by far, not only by one piece of work: each wait of the host draws anew
  /// which of them are quick and which slow.
  void draw_weights() {
    weights_.clear();
    for (CUstream_st* stream : in_order()) {
      constexpr std::array<std::uint64_t, 3> kPaces{1, 30, 1000};
      weights_.emplace_back(stream, kPaces[draw() % kPaces.size()]);
    }
  }

  /// Streams by number: pointers differ from run to run, choices must not.
  std::vector<CUstream_st*> in_order() const {
    std::vector<CUstream_st*> all(streams.begin(), streams.end());
    std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->number < b->number; });
    return all;
  }

  CUstream_st* choose() {
    std::uint64_t total = 0;
    for (const auto& [stream, weight] : weights_) total += ready(*stream) ? weight : 0;
    if (total == 0) return nullptr;
    std::uint64_t at = draw() % total;
    for (const auto& [stream, weight] : weights_) {
      if (!ready(*stream)) continue;
      if (at < weight) return stream;
      at -= weight;
    }
    return nullptr;
  }

  bool ready(CUstream_st& stream) {
    if (stream.items.empty() || unready_.count(&stream) != 0) return false;
    const Item& item = stream.items.front();
    return !item.event || item.event->done >= item.version || error != cudaSuccess;
  }

  bool run(Item& item) {
    if (item.event || (error != cudaSuccess && !item.always)) return true;  // a faulted device runs nothing any more
    if (item.host && !item.always) {
      close();
    } else if (!item.always && !open_) {  // the record of an event touches no memory
      open_.emplace();
    }
    running_ = &item.name;
    bool done = true;
    try {
      if (!fault_name.empty() && item.name == fault_name) {
        fault_name.clear();
        throw std::runtime_error("a fault that the test asked for");
      }
      done = item.step();
    } catch (const std::exception& what) {
      std::fprintf(stderr, "fake cuda: %s: %s\n", item.name.c_str(), what.what());
      fault = what.what();
      error = cudaErrorLaunchFailure;
    }
    running_ = nullptr;
    return done;
  }

  void close() { open_.reset(); }

  std::string blocked() const {
    std::string text;
    for (CUstream_st* stream : in_order()) {
      if (!stream->items.empty())
        text += " stream " + std::to_string(stream->number) + " at " + stream->items.front().name;
    }
    return text;
  }

  std::uint64_t state_;
  std::vector<std::pair<CUstream_st*, std::uint64_t>> weights_;
  std::set<CUstream_st*> unready_;
  std::optional<OpenMemory> open_;
  const std::string* running_ = nullptr;
};

}  // namespace

void push(cudaStream_t stream, Item item) {
  check_stream(stream, item.name.c_str());
  if (Scheduler::get().error != cudaSuccess && !item.always)
    return;  // the call that queues it returns the sticky error
  if (stream->capture != nullptr) {
    stream->capture->items.push_back(std::move(item));
  } else {
    stream->items.push_back(std::move(item));
  }
}

void begin_capture(cudaStream_t stream) {
  Scheduler& scheduler = Scheduler::get();
  if (scheduler.capturing != nullptr) violation("two captures at a time");
  scheduler.capturing = stream;
}

void end_capture() { Scheduler::get().capturing = nullptr; }

bool forbidden_in_capture() {
  const CUstream_st* const stream = Scheduler::get().capturing;
  if (stream == nullptr) return false;
  stream->capture->valid = false;
  return true;
}

void enqueue(cudaStream_t stream, std::string_view name, Step step) {
  push(stream, {std::string(name), std::move(step), nullptr, 0, false, false, nullptr});
}

void enqueue_host(cudaStream_t stream, std::string_view name, Step step) {
  push(stream, {std::string(name), std::move(step), nullptr, 0, true, false, nullptr});
}

double& clock() {
  static double milliseconds = 0;
  return milliseconds;
}

void record(cudaEvent_t event, cudaStream_t stream) {
  const auto state = event->state;
  state->captured = stream->capture != nullptr;
  if (state->captured) return;  // no event of the device's: an edge in the graph
  const std::uint64_t number = ++state->recorded;
  push(stream, {"event record",
                [state, number] {
                  state->done = std::max(state->done, number);
                  state->passed = clock();
                  return true;
                },
                nullptr, 0, true, true, nullptr});
}

void wait_event(cudaStream_t stream, cudaEvent_t event) {
  Scheduler& scheduler = Scheduler::get();
  if (++scheduler.waits == scheduler.ignored_wait) return;
  push(stream, {"event wait", {}, event->state, event->state->recorded, false, false, nullptr});
}

bool is_done(cudaEvent_t event) { return event->state->done >= event->state->recorded; }
bool is_idle(cudaStream_t stream) { return stream->items.empty(); }

void run_until_idle(cudaStream_t stream) {
  Scheduler::get().run_until([stream] { return is_idle(stream); });
}
void run_until_done(cudaEvent_t event) {
  Scheduler::get().run_until([event] { return is_done(event); });
}
void run_all() {
  Scheduler& scheduler = Scheduler::get();
  scheduler.run_until([&] { return std::all_of(scheduler.streams.begin(), scheduler.streams.end(), is_idle); });
}

bool progress() { return Scheduler::get().pass_time(); }
cudaError_t sticky_error() { return Scheduler::get().error; }
const std::string& fault_text() { return Scheduler::get().fault; }
void set_sticky_error(cudaError_t error) { Scheduler::get().error = error; }
void set_seed(std::uint64_t seed) { Scheduler::get().seed(seed); }
void ignore_wait(std::uint64_t n) {
  Scheduler& scheduler = Scheduler::get();
  scheduler.ignored_wait = n == 0 ? 0 : scheduler.waits + n;
}
std::uint64_t waits() { return Scheduler::get().waits; }
void fault_at(std::string_view name) { Scheduler::get().fault_name = name; }
void forget_error() { Scheduler::get().error = cudaSuccess; }
std::uint64_t draw() { return Scheduler::get().draw(); }
std::string_view running() { return Scheduler::get().running(); }

cudaStream_t make_stream() {
  queue_emulated_launches();
  auto* stream = new CUstream_st;
  stream->number = ++Scheduler::get().stream_count;
  Scheduler::get().streams.insert(stream);
  return stream;
}

void drop_stream(cudaStream_t stream) {
  run_until_idle(stream);
  Scheduler::get().streams.erase(stream);
  delete stream;
}

cudaEvent_t make_event() { return *Scheduler::get().events.insert(new CUevent_st).first; }

void drop_event(cudaEvent_t event) {
  Scheduler::get().events.erase(event);
  delete event;
}

void check_stream(cudaStream_t stream, const char* what) {
  if (Scheduler::get().streams.count(stream) == 0) {
    violation(std::string(what) + ": on a default stream, or on one that does not exist");
  }
}

void check_event(cudaEvent_t event, const char* what) {
  if (Scheduler::get().events.count(event) == 0) violation(std::string(what) + ": an event that does not exist");
}

}  // namespace fake
