#include "device.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "espalier/error.hpp"

namespace espalier::remote {
namespace {

constexpr const char* kLaneNames[kLanes] = {"compute", "tensor", "data", "pipeline", "copy"};
constexpr int kSpoilt = 0xA5;

std::size_t row_bytes(const View& view) { return static_cast<std::size_t>(view.cols) * size_of(view.dtype); }

/// All rows, packed.
std::vector<std::byte> packed(const View& view) {
  std::vector<std::byte> bytes(view.bytes());
  for (std::int64_t r = 0; r < view.rows; ++r) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(r) * row_bytes(view), view.at(r, 0), row_bytes(view));
  }
  return bytes;
}

}  // namespace

int queue_of(const Stream& stream) {
  const auto* const own = dynamic_cast<const RemoteStream*>(&stream);
  if (own == nullptr) throw DeviceError("remote: work was put on a stream that is not of this device");
  return own->queue();
}

RemoteDevice::RemoteDevice(std::uint64_t seed) : queues_(memory_, seed), host_(make_cpu_device()) {
  for (std::size_t i = 0; i < kLanes; ++i) lanes_[i] = std::make_unique<RemoteStream>(queues_.add(kLaneNames[i]));
}

RemoteDevice::~RemoteDevice() = default;

DeviceMemory RemoteDevice::reserve(std::size_t bytes, std::string_view purpose) {
  return DeviceMemory(this, memory_.reserve(bytes, purpose), bytes);
}

void RemoteDevice::release(void* data, std::size_t) noexcept { memory_.release(data); }

void RemoteDevice::order(Stream& first, Stream& then) {
  const auto event = std::make_shared<bool>(false);
  queues_.push(queue_of(first), "event", [event] {
    *event = true;
    return Outcome::done;
  });
  queues_.push(queue_of(then), "wait for an event",
               [event] { return *event ? Outcome::done : Outcome::waits_for_event; });
}

void RemoteDevice::copy(const View& from, const View& to, Stream& stream) {
  if (from.rows != to.rows || from.cols != to.cols || from.dtype != to.dtype) {
    throw DeviceError("remote: a copy between views of different shape or type");
  }
  const bool from_host = !memory_.holds(from.data), to_host = !memory_.holds(to.data);
  if (from_host && to_host && !from.empty()) throw DeviceError("remote: a copy from the host to the host");
  std::vector<std::byte> before;
  if (from_host) before = packed(from);
  if (to_host) {
    for (std::int64_t r = 0; r < to.rows; ++r) std::memset(to.at(r, 0), kSpoilt, row_bytes(to));
  }
  queues_.push(queue_of(stream), "copy", [this, from, to, from_host, before = std::move(before)] {
    if (from_host && packed(from) != before) {
      throw DeviceError("remote: " + std::to_string(from.elements()) +
                        " elements of host memory changed before their copy was done");
    }
    host_->copy(from, to, host_->lane(Lane::compute));
    return Outcome::done;
  });
}

void RemoteDevice::fill_zero(const View& view, Stream& stream) {
  if (!view.empty() && !memory_.holds(view.data)) throw DeviceError("remote: host memory is to be filled");
  queues_.push(queue_of(stream), "fill", [this, view] {
    host_->fill_zero(view, host_->lane(Lane::compute));
    return Outcome::done;
  });
}

void RemoteDevice::wait(Stream& stream) {
  waits_ += 1;
  queues_.drain(queue_of(stream));
}

}  // namespace espalier::remote
