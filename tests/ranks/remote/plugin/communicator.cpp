#include "communicator.hpp"

#include <algorithm>
#include <cstring>

namespace espalier::remote {
namespace {

constexpr std::size_t kSlots = 256;
constexpr std::byte kPoison{0xFF};
constexpr int kReceiptTag = 32767;  // minus the tag of the message: tags of tests are small

bool inside(const View& part, const View& whole) {
  return part.data != nullptr && part.data >= whole.data &&
         static_cast<std::byte*>(part.data) < static_cast<std::byte*>(whole.data) + whole.bytes();
}

}  // namespace

struct RemoteCommunicator::Flight {
  Operation operation;
  std::vector<std::byte> source, target;  ///< what travels
  std::vector<std::byte> before;          ///< the source as it was
  Request request, receipt;
  std::byte receipt_byte{1};
  bool begun = false, done = false;

  bool in_place() const {
    return operation.source.data == operation.target.data && operation.source.bytes() == operation.target.bytes();
  }
  /// Whether byte i of the target is the source's, too.
  bool shared(std::size_t i) const {
    const auto* const at = static_cast<const std::byte*>(operation.target.data) + i;
    const auto* const first = static_cast<const std::byte*>(operation.source.data);
    return first != nullptr && at >= first && at < first + operation.source.bytes();
  }
};

RemoteCommunicator::RemoteCommunicator(RemoteDevice& device, std::unique_ptr<Communicator> inner)
    : device_(device),
      inner_(std::move(inner)),
      queue_(device.queues().add("group " + std::string(inner_->name()))),
      slots_(kSlots) {}

RemoteCommunicator::~RemoteCommunicator() { device_.queues().remove(queue_); }

void RemoteCommunicator::require_device(const View& view, const Operation& operation) const {
  if (view.empty() || device_.queues().memory().holds(view.data)) return;
  throw CommError("group " + std::string(name()) + ": " + std::string(name_of(operation.verb)) +
                  " of host memory on a communicator of device memory");
}

Request RemoteCommunicator::start(const Operation& operation, Stream& after) {
  require_device(operation.source, operation);
  require_device(operation.target, operation);
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.flight == nullptr; });
  if (free == slots_.end()) throw CommError("group " + std::string(name()) + ": too many operations are open");
  free->flight = std::make_shared<Flight>();
  free->flight->operation = operation;
  free->generation += 1;

  Queues& queues = device_.queues();
  const auto event = std::make_shared<bool>(false);
  queues.push(queue_of(after), "event", [event] {
    *event = true;
    return Outcome::done;
  });
  queues.push(queue_, "wait for an event", [event] { return *event ? Outcome::done : Outcome::waits_for_event; });
  queues.push(queue_, name_of(operation.verb).data(), [this, flight = free->flight] { return advance(*flight); });
  return {static_cast<std::uint32_t>(free - slots_.begin()), free->generation};
}

void RemoteCommunicator::begin(Flight& flight) {
  const Operation& operation = flight.operation;
  const auto* const source = static_cast<const std::byte*>(operation.source.data);
  if (source != nullptr) flight.before.assign(source, source + operation.source.bytes());
  flight.source = flight.before;
  Operation staged = operation;
  staged.source.data = flight.source.data();
  if (flight.in_place()) {
    staged.target.data = flight.source.data();
  } else {
    flight.target.resize(operation.target.bytes());
    staged.target.data = flight.target.data();
    if (!inside(operation.target, operation.source)) {
      for (std::size_t i = 0; i < flight.target.size(); ++i) {
        if (!flight.shared(i)) static_cast<std::byte*>(operation.target.data)[i] = kPoison;
      }
    }
  }
  flight.request = inner_->start(staged, host_->lane(Lane::compute));
  // A send is over when the other side has come to its receive, which no library promises to be spared.
  if (operation.verb == Verb::send) {
    flight.receipt = inner_->start_receive(View::vector(&flight.receipt_byte, 1, DType::u8), operation.peer,
                                           kReceiptTag - operation.tag, host_->lane(Lane::compute));
  }
  flight.begun = true;
}

void RemoteCommunicator::arrive(Flight& flight) {
  const Operation& operation = flight.operation;
  const std::string where = "group " + std::string(name()) + ": " + std::string(name_of(operation.verb)) + ": ";
  if (operation.source.data != nullptr &&
      std::memcmp(operation.source.data, flight.before.data(), flight.before.size()) != 0) {
    throw CommError(where + "its source was written before it was done");
  }
  if (operation.target.data == nullptr) return;
  auto* const target = static_cast<std::byte*>(operation.target.data);
  if (flight.in_place()) {
    std::copy(flight.source.begin(), flight.source.end(), target);
    return;
  }
  for (std::size_t i = 0; i < flight.target.size() && !inside(operation.target, operation.source); ++i) {
    if (!flight.shared(i) && target[i] != kPoison) throw CommError(where + "its target was written before it was done");
  }
  std::copy(flight.target.begin(), flight.target.end(), target);
}

Outcome RemoteCommunicator::advance(Flight& flight) {
  if (!flight.begun) begin(flight);
  Stream& host = host_->lane(Lane::compute);
  if (!inner_->done(flight.request)) return Outcome::waits_for_network;
  if (flight.operation.verb == Verb::receive && !flight.receipt) {
    flight.receipt = inner_->start_send(View::vector(&flight.receipt_byte, 1, DType::u8), flight.operation.peer,
                                        kReceiptTag - flight.operation.tag, host);
  }
  if (!inner_->done(flight.receipt)) return Outcome::waits_for_network;
  inner_->finish(flight.receipt, host);
  inner_->finish(flight.request, host);
  arrive(flight);
  flight.done = true;
  return Outcome::done;
}

bool RemoteCommunicator::done(Request request) {
  device_.queues().poll();
  if (!request || request.slot >= slots_.size()) return true;
  const Slot& slot = slots_[request.slot];
  return slot.flight == nullptr || slot.generation != request.generation || slot.flight->done;
}

void RemoteCommunicator::finish(Request request, Stream& before) {
  if (!request) return;
  if (request.slot >= slots_.size() || slots_[request.slot].generation != request.generation ||
      slots_[request.slot].flight == nullptr) {
    throw CommError("group " + std::string(name()) + ": a request of another group, or finished twice");
  }
  device_.queues().push(queue_of(before), "wait for a message", [flight = std::move(slots_[request.slot].flight)] {
    return flight->done ? Outcome::done : Outcome::waits_for_event;
  });
  slots_[request.slot].flight = nullptr;
}

std::unique_ptr<Communicator> RemoteCommunicator::split(int colour, int key, std::string_view name) {
  auto part = inner_->split(colour, key, name);
  return part == nullptr ? nullptr : std::make_unique<RemoteCommunicator>(device_, std::move(part));
}

void RemoteCommunicator::abort(int code, std::string_view why) noexcept {
  inner_->abort(code, why);
  assertion_failed("abort() returned", __FILE__, __LINE__);
}

}  // namespace espalier::remote
