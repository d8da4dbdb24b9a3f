#include "telemetry/communicator_counters.hpp"

#include <chrono>

namespace espalier::app {
namespace {

constexpr std::size_t kVerbs = 8;
constexpr std::size_t kSlots = 256;

std::int64_t sent_bytes(const Operation& op, int rank, int size) {
  const auto source = static_cast<std::int64_t>(op.source.bytes());
  const std::int64_t others = size - 1;
  switch (op.verb) {
    case Verb::all_reduce:
      return 2 * source * others / size;
    case Verb::reduce_scatter:
    case Verb::all_to_all:
      return source / size * others;
    case Verb::all_gather:
      return source * others;
    case Verb::broadcast:
      return op.peer == rank && size > 1 ? source : 0;
    case Verb::send:
      return source;
    case Verb::receive:
    case Verb::barrier:
      return 0;
  }
  return 0;
}

class CountingCommunicator final : public CommunicatorWrapper {
 public:
  CountingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<CommCounters> counters)
      : CommunicatorWrapper(std::move(inner)),
        counters_(std::move(counters)),
        rows_(counters_->rows_of(name())),
        verbs_(kSlots) {}

  Request start(const Operation& op, Stream& after) override {
    const Request request = CommunicatorWrapper::start(op, after);
    CommTotal& row = counters_->row(rows_ + static_cast<std::size_t>(op.verb));
    row.calls += 1;
    row.bytes += sent_bytes(op, rank(), size());
    if (request.slot < kSlots) verbs_[request.slot] = op.verb;
    return request;
  }

  void finish(Request request, Stream& before) override {
    const auto begin = std::chrono::steady_clock::now();
    CommunicatorWrapper::finish(request, before);
    if (!request || request.slot >= kSlots) return;
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    counters_->row(rows_ + static_cast<std::size_t>(verbs_[request.slot])).wait_seconds += waited.count();
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    auto part = CommunicatorWrapper::split(colour, key, name);
    return part == nullptr ? nullptr : make_counting_communicator(std::move(part), counters_);
  }

 private:
  std::shared_ptr<CommCounters> counters_;
  std::size_t rows_;
  std::vector<Verb> verbs_;  // of the open requests, by slot
};

}  // namespace

void CommCounters::reset() {
  for (CommTotal& row : totals_) row.calls = row.bytes = 0, row.wait_seconds = 0;
}

std::size_t CommCounters::rows_of(std::string_view group) {
  for (std::size_t i = 0; i < totals_.size(); i += kVerbs) {
    if (totals_[i].group == group) return i;
  }
  const std::size_t first = totals_.size();
  for (std::size_t v = 0; v < kVerbs; ++v) totals_.push_back({std::string(group), static_cast<Verb>(v)});
  return first;
}

std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> inner,
                                                         std::shared_ptr<CommCounters> counters) {
  return std::make_unique<CountingCommunicator>(std::move(inner), std::move(counters));
}

}  // namespace espalier::app
