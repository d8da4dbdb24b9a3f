#include "espalier/parallel/checker.hpp"

#include <algorithm>
#include <string>

#include "espalier/error.hpp"

namespace espalier {
namespace {

bool is_send(Do what) { return what == Do::send_activation || what == Do::send_gradient; }
bool is_receive(Do what) { return what == Do::receive_activation || what == Do::receive_gradient; }
bool is_work(Do what) { return what <= Do::backward_weight; }
bool carries_activation(Do what) { return what == Do::send_activation || what == Do::receive_activation; }

std::string text_of(const Instruction& at) {
  std::string text(name_of(at.what));
  if (at.what >= Do::reduce_gradients) return text;
  text += " of micro-batch " + std::to_string(at.micro_batch) + ", chunk " + std::to_string(at.chunk);
  if (is_send(at.what)) text += ", to stage " + std::to_string(at.peer);
  if (is_receive(at.what)) text += ", from stage " + std::to_string(at.peer);
  return text;
}

/// What has been done of one (chunk, micro-batch) of a stage.
struct Unit {
  bool forward = false, input = false, weight = false;
  bool activation_in = false, activation_out = false, gradient_in = false, gradient_out = false;
};

/// Part c · stages + s of the model is chunk c of stage s.
class Checker {
 public:
  explicit Checker(const ScheduleLists& lists)
      : lists_(lists), stages_(static_cast<int>(lists.stages.size())), parts_(stages_ * lists.chunks) {}

  std::vector<int> run() {
    std::vector<int> most;
    for (stage_ = 0; stage_ < stages_; ++stage_) most.push_back(check_stage());
    check_order();
    return most;
  }

 private:
  bool train() const { return lists_.mode == Mode::train; }
  const std::vector<Instruction>& list(int stage) const { return lists_.stages[static_cast<std::size_t>(stage)]; }
  int part(int stage, int chunk) const { return chunk * stages_ + stage; }
  /// The stage of the part that comes before or after, -1 where there is none.
  int neighbour(int chunk, int step) const {
    const int other = part(stage_, chunk) + step;
    return other < 0 || other >= parts_ ? -1 : other % stages_;
  }

  std::string where(int stage, std::size_t index) const {
    return "stage " + std::to_string(stage) + ", instruction " + std::to_string(index) + " (" +
           text_of(list(stage)[index]) + ")";
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw PluginError(std::string("the pipeline's schedule for ") + (train() ? "training" : "forward only") + " with " +
                      std::to_string(lists_.micro_batches) + " micro-batches is unsound: " + what);
  }
  void demand(bool holds, const char* rule) const {
    if (!holds) refuse(where(stage_, index_) + ": " + rule);
  }

  int check_stage() {
    const auto chunks = static_cast<std::size_t>(lists_.chunks);
    units_.assign(chunks * static_cast<std::size_t>(lists_.micro_batches), {});
    next_input_.assign(chunks, 0);
    next_weight_.assign(chunks, 0);
    reduced_ = tied_ = stepped_ = false;
    live_ = most_live_ = open_[0] = open_[1] = 0;
    for (index_ = 0; index_ < list(stage_).size(); ++index_) check_instruction(list(stage_)[index_]);
    check_end();
    return most_live_;
  }

  void check_instruction(const Instruction& at) {
    demand(!stepped_, "nothing may follow step");
    if (at.what >= Do::reduce_gradients) return check_end_of_step(at.what);
    demand(at.micro_batch >= 0 && at.micro_batch < lists_.micro_batches, "there is no such micro-batch");
    demand(at.chunk >= 0 && at.chunk < lists_.chunks, "there is no such chunk");
    Unit& unit = units_[static_cast<std::size_t>(at.chunk * lists_.micro_batches + at.micro_batch)];
    if (!is_work(at.what)) return check_message(at, unit);
    if (at.what == Do::forward) {
      demand(!unit.forward, "a second forward");
      demand(unit.activation_in || neighbour(at.chunk, -1) < 0, "its activation has not been received");
      if (neighbour(at.chunk, -1) >= 0) open_[0] -= 1;
      unit.forward = true;
      most_live_ = std::max(most_live_, ++live_);
      if (!train()) live_ -= 1;
      return;
    }
    demand(train(), "there is no backward in a forward-only list");
    demand(!reduced_, "gradients have been reduced before");
    auto& next_input = next_input_[static_cast<std::size_t>(at.chunk)];
    auto& next_weight = next_weight_[static_cast<std::size_t>(at.chunk)];
    if (at.what != Do::backward_weight) {
      demand(unit.forward, "before its forward");
      demand(!unit.input, "a second backward");
      demand(unit.gradient_in || neighbour(at.chunk, 1) < 0, "its gradient has not been received");
      demand(at.micro_batch == next_input++, "gradients must be added in ascending order of micro-batches");
      if (neighbour(at.chunk, 1) >= 0) open_[1] -= 1;
      unit.input = true;
    }
    if (at.what != Do::backward_input) {
      demand(unit.input, "before its input half");
      demand(!unit.weight, "a second weight half");
      demand(at.micro_batch == next_weight++, "gradients must be added in ascending order of micro-batches");
      unit.weight = true;
      live_ -= 1;
    }
  }

  void check_message(const Instruction& at, Unit& unit) {
    const bool activation = carries_activation(at.what), sends = is_send(at.what);
    demand(train() || activation, "there are no gradients in a forward-only list");
    const int peer = neighbour(at.chunk, activation == sends ? 1 : -1);
    demand(peer >= 0, "this end of the model has no neighbour");
    demand(peer != stage_, "a stage cannot send to itself");
    demand(at.peer == peer, "not the stage that holds the neighbouring part of the model");
    if (sends) {
      bool& sent = activation ? unit.activation_out : unit.gradient_out;
      demand(activation ? unit.forward : unit.input, "before the work that makes it");
      demand(!sent, "sent twice");
      sent = true;
    } else {
      bool& received = activation ? unit.activation_in : unit.gradient_in;
      demand(!received, "received twice");
      demand(activation || unit.forward, "before its forward");
      demand(++open_[activation ? 0 : 1] <= kMostOpenReceives, "more than 64 receives of its kind are open");
      received = true;
    }
  }

  void check_end_of_step(Do what) {
    demand(train(), "there is no step in a forward-only list");
    if (what == Do::reduce_gradients) {
      demand(!reduced_, "a second reduction");
      for (const int next : next_weight_) {
        demand(next == lists_.micro_batches, "weight gradients are missing: it must follow all of them");
      }
      reduced_ = true;
    } else if (what == Do::reduce_tied_gradients) {
      demand(stage_ == 0 || stage_ == stages_ - 1, "only the first and the last stage hold the tied embedding");
      demand(reduced_, "the tie is summed after the data reduction");
      demand(!tied_, "a second reduction of the tie");
      tied_ = true;
    } else {
      demand(reduced_, "gradients have not been reduced");
      const bool end = stages_ > 1 && (stage_ == 0 || stage_ == stages_ - 1);
      demand(tied_ || !end, "the tied gradients have not been reduced");
      stepped_ = true;
    }
  }

  void check_end() {
    for (int chunk = 0; chunk < lists_.chunks; ++chunk) {
      for (int m = 0; m < lists_.micro_batches; ++m) {
        const Unit& unit = units_[static_cast<std::size_t>(chunk * lists_.micro_batches + m)];
        const char* missing = nullptr;
        if (train() && neighbour(chunk, -1) >= 0 && !unit.gradient_out) missing = "send_gradient";
        if (train() && !unit.weight) missing = "backward";
        if (neighbour(chunk, 1) >= 0 && !unit.activation_out) missing = "send_activation";
        if (!unit.forward) missing = "forward";
        if (missing == nullptr) continue;
        refuse("stage " + std::to_string(stage_) + ", end of its list: no " + missing + " of micro-batch " +
               std::to_string(m) + ", chunk " + std::to_string(chunk));
      }
    }
    if (train() && !stepped_) refuse("stage " + std::to_string(stage_) + ", end of its list: no step");
  }

  /// The instruction of another stage that `at` of stage `stage` meets; for collectives one of the same kind.
  Instruction partner(const Instruction& at, int stage) const {
    const bool forwards = carries_activation(at.what) == is_send(at.what);
    const int other = part(stage, at.chunk) + (forwards ? 1 : -1);
    constexpr Do kPartner[] = {Do::receive_activation, Do::send_activation, Do::receive_gradient, Do::send_gradient};
    const auto index = static_cast<int>(at.what) - static_cast<int>(Do::send_activation);
    return {kPartner[index], at.micro_batch, other / stages_, stage};
  }

  /// The stage that `stage` waits for at its present instruction; itself when nothing holds it up.
  int waits_for(int stage) const {
    if (at_[static_cast<std::size_t>(stage)] == list(stage).size()) return stage;
    const Instruction& at = list(stage)[at_[static_cast<std::size_t>(stage)]];
    if (is_work(at.what) || at.what == Do::reduce_gradients) return stage;
    const auto stands_at = [&](int other, const auto& matches) {
      const std::size_t index = at_[static_cast<std::size_t>(other)];
      return index < list(other).size() && matches(list(other)[index]);
    };
    if (at.what < Do::reduce_gradients) {
      const Instruction wanted = partner(at, stage);
      return stands_at(at.peer, [&](const Instruction& i) { return i == wanted; }) ? stage : at.peer;
    }
    for (int other = 0; other < stages_; ++other) {
      if (at.what == Do::reduce_tied_gradients && other != 0 && other != stages_ - 1) continue;
      if (!stands_at(other, [&](const Instruction& i) { return i.what == at.what; })) return other;
    }
    return stage;
  }

  /// Lets the stages meet in every communication until all lists are through: the order in which they do is the proof.
  void check_order() {
    at_.assign(static_cast<std::size_t>(stages_), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage) {
        std::size_t& here = at_[static_cast<std::size_t>(stage)];
        while (here < list(stage).size() && waits_for(stage) == stage) {
          const Do what = list(stage)[here].what;
          if (what == Do::step) return;  // every stage stands at its end
          if (is_send(what) || is_receive(what)) at_[static_cast<std::size_t>(list(stage)[here].peer)] += 1;
          if (what == Do::reduce_tied_gradients && stages_ > 1) at_[stage == 0 ? at_.size() - 1 : 0] += 1;
          here += 1;
          moved = true;
        }
      }
    }
    int stage = 0;
    while (stage < stages_ && at_[static_cast<std::size_t>(stage)] == list(stage).size()) stage += 1;
    if (stage == stages_) return;
    // Follow who waits for whom: after as many turns as there are stages it is a circle.
    for (int turn = 0; turn < stages_; ++turn) stage = waits_for(stage);
    std::string circle;
    for (int turn = 0; turn <= stages_; ++turn) {
      circle += where(stage, at_[static_cast<std::size_t>(stage)]) + " waits for ";
      stage = waits_for(stage);
      if (turn > 0 && circle.starts_with("stage " + std::to_string(stage) + ", ")) break;
    }
    refuse("its communication has no order: " + circle + "stage " + std::to_string(stage) +
           "; post receives before the sends that cross them");
  }

  const ScheduleLists& lists_;
  int stages_, parts_;
  int stage_ = 0;
  std::size_t index_ = 0;
  std::vector<Unit> units_;                    // [chunks · micro-batches]
  std::vector<int> next_input_, next_weight_;  // [chunks]: micro-batch whose half must come next
  bool reduced_ = false, tied_ = false, stepped_ = false;
  int live_ = 0, most_live_ = 0, open_[2] = {};
  std::vector<std::size_t> at_;  // [stages]: where each stands
};

}  // namespace

ScheduleLists lists_of(const PipelineParallel& pipeline, Mode mode, int micro_batches) {
  ScheduleLists lists{mode, pipeline.chunks(), micro_batches, {}};
  for (int stage = 0; stage < pipeline.stages(); ++stage) {
    lists.stages.push_back(pipeline.schedule(mode, stage, micro_batches));
  }
  return lists;
}

std::vector<int> check_schedule(const ScheduleLists& lists) { return Checker(lists).run(); }

std::vector<double> idle_shares(const ScheduleLists& lists, const WorkDurations& durations) {
  const std::size_t stages = lists.stages.size();
  const std::size_t units = stages * static_cast<std::size_t>(lists.chunks * lists.micro_batches);
  std::vector<double> sent[2] = {std::vector<double>(units, -1),
                                 std::vector<double>(units, -1)};  // by the sending part
  std::vector<double> clock(stages, 0), busy(stages, 0);
  std::vector<std::size_t> at(stages, 0);
  const auto unit = [&](std::size_t stage, const Instruction& i, int step) {
    const auto part = static_cast<std::size_t>(i.chunk) * stages + stage;
    return static_cast<std::size_t>(static_cast<int>(part) + step) * static_cast<std::size_t>(lists.micro_batches) +
           static_cast<std::size_t>(i.micro_batch);
  };
  const auto last = stages * static_cast<std::size_t>(lists.chunks) - 1;
  /// Whether the instruction could be done: not before its message was sent.
  const auto advance = [&](std::size_t stage, const Instruction& i) {
    if (is_send(i.what)) sent[carries_activation(i.what) ? 0 : 1][unit(stage, i, 0)] = clock[stage];
    if (!is_work(i.what)) return true;
    const auto part = static_cast<std::size_t>(i.chunk) * stages + stage;
    double ready = 0;
    if (i.what == Do::forward && part > 0) ready = sent[0][unit(stage, i, -1)];
    if ((i.what == Do::backward || i.what == Do::backward_input) && part < last) ready = sent[1][unit(stage, i, 1)];
    if (ready < 0) return false;
    double duration = 0;
    if (i.what == Do::forward) duration = durations.forward;
    if (i.what == Do::backward || i.what == Do::backward_input) duration += durations.backward_input;
    if (i.what == Do::backward || i.what == Do::backward_weight) duration += durations.backward_weight;
    clock[stage] = std::max(clock[stage], ready) + duration;
    busy[stage] += duration;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      const auto& list = lists.stages[stage];
      for (; at[stage] < list.size() && advance(stage, list[at[stage]]); ++at[stage]) moved = true;
    }
  }
  const double end = *std::max_element(clock.begin(), clock.end());
  std::vector<double> shares;
  for (const double time : busy) shares.push_back((end - time) / end);
  return shares;
}

}  // namespace espalier
