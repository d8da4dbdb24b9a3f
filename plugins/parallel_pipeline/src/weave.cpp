#include "weave.hpp"

#include <algorithm>
#include <tuple>

#include "espalier/error.hpp"

namespace espalier::parallel_pipeline {
namespace {

constexpr int kNotYet = -1;

/// When the work of each part on each micro-batch is over.
struct Clock {
  Clock(const Orders& orders, int chunks, int count)
      : stages(static_cast<int>(orders.size())), parts(stages * chunks), micro_batches(count) {
    const auto units = static_cast<std::size_t>(parts * count);
    forward.assign(units, kNotYet);
    backward.assign(units, kNotYet);
    run(orders);
  }

  std::size_t unit(int part, int micro_batch) const {
    return static_cast<std::size_t>(part * micro_batches + micro_batch);
  }
  int forward_end(int part, int micro_batch) const { return forward[unit(part, micro_batch)]; }
  int backward_end(int part, int micro_batch) const { return backward[unit(part, micro_batch)]; }

  /// When what the work needs from its neighbour is there.
  int ready(const Instruction& at, int part) const {
    if (at.what == Do::backward_weight) return 0;
    if (at.what == Do::forward) return part == 0 ? 0 : forward_end(part - 1, at.micro_batch);
    return part == parts - 1 ? 0 : backward_end(part + 1, at.micro_batch);
  }

  void run(const Orders& orders) {
    std::vector<std::size_t> next(orders.size(), 0);
    ends.resize(orders.size());
    std::size_t left = 0;
    for (const auto& order : orders) left += order.size();
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t s = 0; s < orders.size(); ++s) {
        for (; next[s] < orders[s].size(); ++next[s], --left) {
          const Instruction& at = orders[s][next[s]];
          const int part = at.chunk * stages + static_cast<int>(s);
          const int start = ready(at, part);
          if (start == kNotYet) break;
          const int end = std::max(start, ends[s].empty() ? 0 : ends[s].back()) + (at.what == Do::backward ? 2 : 1);
          ends[s].push_back(end);
          if (at.what == Do::backward_weight) continue;
          (at.what == Do::forward ? forward : backward)[unit(part, at.micro_batch)] = end;
        }
      }
      ESPALIER_ASSERT(left < before);
    }
  }

  int stages, parts, micro_batches;
  std::vector<int> forward, backward;  // [parts · micro-batches]
  std::vector<std::vector<int>> ends;  // of each stage's work, in its order
};

struct Message {
  int time = 0;
  int kind = 0;  ///< 0 activation, 1 gradient
  int part = 0;  ///< that sends
  Instruction instruction;
  /// The same on both sides.
  auto key() const { return std::tuple(time, kind, part, instruction.micro_batch); }
};

std::vector<Message> messages_of(const std::vector<Instruction>& order, const Clock& clock, int stage) {
  const int stages = clock.stages;
  std::vector<Message> messages;
  for (const Instruction& at : order) {
    const int part = at.chunk * stages + stage, m = at.micro_batch;
    const auto add = [&](Do what, int sender, int other) {
      const bool activation = what == Do::send_activation || what == Do::receive_activation;
      const int time = activation ? clock.forward_end(sender, m) : clock.backward_end(sender, m);
      messages.push_back({time, activation ? 0 : 1, sender, {what, m, at.chunk, other % stages}});
    };
    const bool forward = at.what == Do::forward;
    if (at.what == Do::backward_weight) continue;
    if (forward && part > 0) add(Do::receive_activation, part - 1, part - 1);
    if (forward && part < clock.parts - 1) add(Do::send_activation, part, part + 1);
    if (!forward && part < clock.parts - 1) add(Do::receive_gradient, part + 1, part + 1);
    if (!forward && part > 0) add(Do::send_gradient, part, part - 1);
  }
  std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) { return a.key() < b.key(); });
  return messages;
}

}  // namespace

std::vector<Instruction> weave(const Orders& orders, Mode mode, int stage, int chunks, int micro_batches) {
  const Clock clock(orders, chunks, micro_batches);
  const auto own = static_cast<std::size_t>(stage);
  const std::vector<Message> messages = messages_of(orders[own], clock, stage);
  std::vector<Instruction> list;
  auto message = messages.begin();
  for (std::size_t i = 0; i < orders[own].size(); ++i) {
    for (; message != messages.end() && message->time < clock.ends[own][i]; ++message) {
      list.push_back(message->instruction);
    }
    list.push_back(orders[own][i]);
  }
  for (; message != messages.end(); ++message) list.push_back(message->instruction);
  if (mode == Mode::forward_only) return list;
  list.push_back({Do::reduce_gradients, 0, 0, 0});
  const bool end = stage == 0 || stage == clock.stages - 1;
  if (clock.stages > 1 && end) list.push_back({Do::reduce_tied_gradients, 0, 0, 0});
  list.push_back({Do::step, 0, 0, 0});
  return list;
}

}  // namespace espalier::parallel_pipeline
