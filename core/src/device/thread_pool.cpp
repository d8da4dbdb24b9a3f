// The one thread pool of a rank. Items are claimed one by one from a ticket that carries the number of the job, so a
// worker that wakes late finds nothing to take, and run() never waits for a worker that has not started.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "espalier/error.hpp"
#include "espalier/threads.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace espalier {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// About 20 µs: longer than the gap between two kernels of a step, shorter than what a rank that shares the core would
// miss.
constexpr int kSpins = 1000;
constexpr auto kBetween = std::chrono::microseconds(200);  // well below a millisecond, far above reading the clock
std::atomic<void (*)()> between_items{nullptr};

constexpr std::int64_t kMaxItems = 0xffffffff;  // the lower half of a ticket

class Pool final : public ThreadPool {
 public:
  explicit Pool(int threads) {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~Pool() override {
    stopping_.store(true, std::memory_order_relaxed);
    signal_.fetch_add(1, std::memory_order_release);
    signal_.notify_all();
    workers_.clear();  // joins before the members they use go
  }

  int size() const override { return static_cast<int>(workers_.size()) + 1; }

  void run(std::int64_t items, FunctionRef<void(std::int64_t)> body) override {
    if (workers_.empty() || items <= 1) {
      for (std::int64_t i = 0; i < items; ++i) {
        body(i);
        between();
      }
      return;
    }
    ESPALIER_ASSERT(!running_);
    running_ = true;
    for (std::int64_t begin = 0; begin < items; begin += kMaxItems) {
      run_part(begin, std::min(kMaxItems, items - begin), body);
    }
    running_ = false;
  }

 private:
  void run_part(std::int64_t begin, std::int64_t items, const FunctionRef<void(std::int64_t)>& body) {
    body_ = &body;
    end_ = begin + items;
    open_.store(static_cast<std::uint32_t>(items), std::memory_order_relaxed);
    job_ += 1;
    ticket_.store((job_ << 32) | static_cast<std::uint64_t>(items), std::memory_order_release);
    signal_.fetch_add(1, std::memory_order_release);
    signal_.notify_all();
    take_items([this] { between(); });
    for (int spin = 0; spin < kSpins; ++spin) {
      if (open_.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    for (std::uint32_t open = open_.load(std::memory_order_acquire); open != 0;
         open = open_.load(std::memory_order_acquire)) {
      open_.wait(open, std::memory_order_acquire);
    }
  }

  void between() {
    void (*const between_work)() = between_items.load(std::memory_order_relaxed);
    if (between_work == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    between_work();
    next_ = now + kBetween;
  }

  template <class AfterItem>
  void take_items(AfterItem after_item) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while ((ticket & 0xffffffff) != 0) {
      if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire)) continue;
      // The item is ours: until it is counted down, body_ and end_ stay as they are.
      const std::int64_t item = end_ - static_cast<std::int64_t>(ticket & 0xffffffff);
      (*body_)(item);
      if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) open_.notify_one();
      after_item();
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  void work() {
    std::uint32_t seen = 0;
    for (;;) {
      std::uint32_t now = signal_.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < kSpins; ++spin) {
        relax();
        now = signal_.load(std::memory_order_acquire);
      }
      if (now == seen) {
        signal_.wait(seen, std::memory_order_acquire);
        now = signal_.load(std::memory_order_acquire);
      }
      if (stopping_.load(std::memory_order_relaxed)) return;
      seen = now;
      take_items([] {});
    }
  }

  const FunctionRef<void(std::int64_t)>* body_ = nullptr;
  std::int64_t end_ = 0;
  std::uint64_t job_ = 0;
  bool running_ = false;
  std::chrono::steady_clock::time_point next_;        // when the caller may look after messages again
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // job in the upper half, items left in the lower
  alignas(64) std::atomic<std::uint32_t> open_{0};    // items not yet done
  alignas(64) std::atomic<std::uint32_t> signal_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::jthread> workers_;
};

}  // namespace

std::unique_ptr<ThreadPool> make_thread_pool(int threads) {
  if (threads < 1) throw DeviceError("thread pool: asked for " + std::to_string(threads) + " threads; give at least 1");
  return std::make_unique<Pool>(threads);
}

void set_between_items(void (*work)()) { between_items.store(work, std::memory_order_relaxed); }

}  // namespace espalier
