#include "queues.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "espalier/error.hpp"

namespace espalier::remote {
namespace {

constexpr auto kPatience = std::chrono::seconds(40);
constexpr int kItemsOfAnOrder = 24;
constexpr int kStubborn = 60;

/// For a lifetime true, false again at its end.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flag() { flag_ = false; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

 private:
  bool& flag_;
};

}  // namespace

int Queues::add(std::string name) {
  queues_.push_back({std::move(name), {}, random_()});
  return static_cast<int>(queues_.size()) - 1;
}

void Queues::remove(int queue) { queues_[static_cast<std::size_t>(queue)].items.clear(); }

void Queues::push(int queue, const char* what, Item item) {
  queues_[static_cast<std::size_t>(queue)].items.push_back({what, std::move(item)});
}

std::size_t Queues::waiting() const {
  std::size_t sum = 0;
  for (const Queue& queue : queues_) sum += queue.items.size();
  return sum;
}

/// Odd seeds hold an order of preference for some items, and wait a while for the network rather than try another
/// queue, so that one queue runs far ahead of the others; even ones draw anew for each item.
Outcome Queues::run_one() {
  if (seed_ % 2 == 0 || items_ == 0) {
    for (Queue& queue : queues_) queue.priority = random_();
    items_ = kItemsOfAnOrder;
    stubborn_ = seed_ % 2 == 0 ? 0 : kStubborn;
  }
  order_.clear();
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    if (!queues_[q].items.empty()) order_.push_back(q);
  }
  std::sort(order_.begin(), order_.end(),
            [&](std::size_t a, std::size_t b) { return queues_[a].priority < queues_[b].priority; });
  const Flag running(running_);
  const Memory::Access access(memory_);
  Outcome best = Outcome::waits_for_event;
  for (const std::size_t q : order_) {
    const Outcome outcome = queues_[q].items.front().item();
    if (outcome == Outcome::done) {
      queues_[q].items.pop_front();
      items_ -= 1;
      return outcome;
    }
    if (outcome == Outcome::waits_for_network) best = outcome;
    if (outcome == Outcome::waits_for_network && stubborn_ > 0) {
      stubborn_ -= 1;
      return outcome;
    }
  }
  return best;
}

void Queues::drain(int queue) {
  const Memory::Access access(memory_);
  auto last_move = std::chrono::steady_clock::now();
  while (!empty(queue)) {
    const Outcome outcome = run_one();
    if (outcome == Outcome::waits_for_event) throw DeviceError("remote: queues wait for each other: " + heads());
    const auto now = std::chrono::steady_clock::now();
    if (outcome == Outcome::done) {
      last_move = now;
    } else if (now - last_move > kPatience) {
      throw DeviceError("remote: no other rank came to meet: " + heads());
    } else {
      sched_yield();
    }
  }
}

void Queues::poll() {
  if (running_) return;
  for (auto items = random_() % 3; items > 0 && waiting() > 0; --items) {
    if (run_one() != Outcome::done) return;
  }
}

std::string Queues::heads() const {
  std::string text;
  for (const Queue& queue : queues_) {
    if (queue.items.empty()) continue;
    text += (text.empty() ? "" : "; ") + queue.name + " at " + queue.items.front().what + ", " +
            std::to_string(queue.items.size()) + " queued";
  }
  return text;
}

}  // namespace espalier::remote
