#include "telemetry/collective_check.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "espalier/threads.hpp"
#include "telemetry/log.hpp"
#include "telemetry/rank_text.hpp"

namespace espalier::app {
namespace {

/// What a rank is about to do, as it travels.
struct Asked {
  std::int64_t step = 0;
  std::int64_t source = 0, target = 0;  // elements
  std::int32_t verb = 0, dtype = 0, reduce = 0, root = 0;
  std::array<char, 96> name{};  // "": not known

  std::string text() const {
    std::string text = fmt::format("{} of {} {}", name_of(static_cast<Verb>(verb)), std::max(source, target),
                                   name_of(static_cast<DType>(dtype)));
    if (static_cast<Verb>(verb) == Verb::broadcast) text += fmt::format(" from rank {} of the group", root);
    if (reduce == static_cast<std::int32_t>(Reduce::max)) text += " (maximum)";
    if (reduce == static_cast<std::int32_t>(Reduce::sum_library)) text += " (sum in the library's order)";
    if (name[0] != '\0') text += fmt::format(" ({})", name.data());
    return text + fmt::format(" in step {}", step);
  }
};
static_assert(std::has_unique_object_representations_v<Asked>, "compared byte by byte");

Asked asked_of(const Operation& op, const CollectiveCheck& check) {
  Asked asked;
  const View& view = op.source ? op.source : op.target;
  asked.step = check.step();
  asked.verb = static_cast<std::int32_t>(op.verb);
  if (op.verb == Verb::barrier) return asked;
  asked.source = op.source.elements();
  asked.target = op.target.elements();
  asked.dtype = static_cast<std::int32_t>(view.dtype);
  if (op.verb == Verb::all_reduce || op.verb == Verb::reduce_scatter)
    asked.reduce = static_cast<std::int32_t>(op.reduce);
  if (op.verb == Verb::broadcast) asked.root = op.peer;
  // The buffer of the whole group, of which a rank's own piece may be a part.
  const std::string_view name = check.name_at(op.verb == Verb::all_gather ? op.target.data : view.data);
  name.copy(asked.name.data(), asked.name.size() - 1);
  return asked;
}

class HostStream final : public Stream {};

class CheckingCommunicator final : public CommunicatorWrapper {
 public:
  CheckingCommunicator(std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> side,
                       std::shared_ptr<CollectiveCheck> check)
      : CommunicatorWrapper(std::move(inner)),
        side_(std::move(side)),
        check_(std::move(check)),
        all_(static_cast<std::size_t>(size())) {}

  Request start(const Operation& op, Stream& after) override {
    const bool collective = op.verb != Verb::send && op.verb != Verb::receive;
    if (collective) compare(op);
    const Request request = CommunicatorWrapper::start(op, after);
    if (request.slot < open_.size()) open_[request.slot] = {collective, ordinal_, mine_};
    return request;
  }

  /// Several may be on their way: a rank that has started one may stand still before it is over.
  void finish(Request request, Stream& before) override {
    if (request && request.slot < open_.size() && open_[request.slot].collective) {
      const Open& open = open_[request.slot];
      wait([&] { return CommunicatorWrapper::done(request); }, open.asked, open.ordinal, "its end");
    }
    CommunicatorWrapper::finish(request, before);
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    auto part = CommunicatorWrapper::split(colour, key, name);
    auto side = side_->split(colour, key, name);
    return part == nullptr ? nullptr : make_checking_communicator(std::move(part), std::move(side), check_);
  }

 private:
  void compare(const Operation& op) {
    if (step_ != check_->step()) ordinal_ = 0;
    step_ = check_->step();
    ordinal_ += 1;
    mine_ = asked_of(op, *check_);
    const View source = View::vector(&mine_, sizeof mine_, DType::u8);
    const View target = View::vector(all_.data(), static_cast<std::int64_t>(sizeof mine_ * all_.size()), DType::u8);
    const Request request = side_->start_all_gather(source, target, stream_);
    wait([&] { return side_->done(request); }, mine_, ordinal_, "it");
    side_->finish(request, stream_);
    for (const Asked& other : all_) {
      if (std::memcmp(&other, all_.data(), sizeof other) != 0) differ();
    }
  }

  /// Polls; a rank that has waited too long says what it waits for. Each such rank does, before one of them ends the
  /// job.
  void wait(FunctionRef<bool()> done, const Asked& asked, std::int64_t ordinal, std::string_view point) {
    const auto start = std::chrono::steady_clock::now();
    for (int turn = 1; !done(); ++turn) {
      if (turn < 100) continue;
      sched_yield();
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (check_->patience() <= 0 || waited.count() < check_->patience()) continue;
      const std::string text =
          fmt::format("{}: waited {:.0f} s for {}; not all ranks of the group have come to {}, see what they wait for",
                      place(ordinal), waited.count(), asked.text(), point);
      log(LogLevel::error, "collective check", text);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      abort(static_cast<int>(ExitCode::communication), "collective check: " + text);
    }
  }

  /// All ranks of the group are here and know the same.
  [[noreturn]] void differ() {
    std::vector<std::pair<Asked, std::vector<int>>> kinds;
    for (int rank = 0; rank < size(); ++rank) {
      const Asked& asked = all_[static_cast<std::size_t>(rank)];
      const auto known = std::ranges::find_if(
          kinds, [&](const auto& kind) { return std::memcmp(&kind.first, &asked, sizeof asked) == 0; });
      if (known == kinds.end()) {
        kinds.push_back({asked, {rank}});
      } else {
        known->second.push_back(rank);
      }
    }
    std::string text;
    for (const auto& [asked, ranks] : kinds)
      text += fmt::format("{}{} asked for {}", text.empty() ? "" : ", ", text_of_ranks(ranks), asked.text());
    // Said once, by the group's first rank, whose abort ends the others.
    if (rank() > 0) std::this_thread::sleep_for(std::chrono::seconds(2));
    abort(static_cast<int>(ExitCode::communication), fmt::format("collective check: {}: {}", place(ordinal_), text));
  }

  std::string place(std::int64_t ordinal) const {
    return fmt::format("step {}, group {}, its operation {} in the step, rank {} of {}", step_, name(), ordinal, rank(),
                       size());
  }

  struct Open {
    bool collective = false;
    std::int64_t ordinal = 0;
    Asked asked;
  };

  std::unique_ptr<Communicator> side_;
  std::shared_ptr<CollectiveCheck> check_;
  std::array<Open, 256> open_;  // by slot of the request
  HostStream stream_;
  Asked mine_;
  std::vector<Asked> all_;  // [ranks]
  std::int64_t step_ = -1;
  std::int64_t ordinal_ = 0;  // of collectives in this step
};

}  // namespace

void CollectiveCheck::name_buffer(const View& view, std::string name) {
  if (view.empty()) return;
  const auto* begin = static_cast<const std::byte*>(view.data);
  const std::byte* end = view.at(view.rows - 1, view.cols);
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != ranges_.end() && at->first < end) at = ranges_.erase(at);
  ranges_.emplace(begin, Range{end, std::move(name)});
}

std::string_view CollectiveCheck::name_at(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto next = ranges_.upper_bound(byte);
  if (next == ranges_.begin() || std::prev(next)->second.end <= byte) return {};
  return std::prev(next)->second.name;
}

std::unique_ptr<Communicator> make_checking_communicator(std::unique_ptr<Communicator> inner,
                                                         std::unique_ptr<Communicator> side,
                                                         std::shared_ptr<CollectiveCheck> check) {
  return std::make_unique<CheckingCommunicator>(std::move(inner), std::move(side), std::move(check));
}

void NamedData::bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) {
  parameters_ = plan.parameters;
  inner_.bind(plan, optimizer, backend);
}

View NamedData::weight(int parameter) const {
  const View view = inner_.weight(parameter);
  check_->name_buffer(
      view, fmt::format("{}, working weights", parameters_[static_cast<std::size_t>(parameter)].parameter.name));
  return view;
}

GradientSlot NamedData::gradient(int parameter, int micro_batch) {
  const GradientSlot slot = inner_.gradient(parameter, micro_batch);
  check_->name_buffer(slot.where,
                      fmt::format("{}, gradient", parameters_[static_cast<std::size_t>(parameter)].parameter.name));
  return slot;
}

}  // namespace espalier::app
