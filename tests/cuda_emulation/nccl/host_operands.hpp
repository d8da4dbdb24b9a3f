// Lets a communicator of device memory be tested with operands in host memory: they travel through memory of the
// device.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "espalier/communicator.hpp"
#include "espalier/device.hpp"

namespace espalier::testing_support {

class HostOperands final : public Communicator {
 public:
  /// @param device  shared by all communicators made of this one.
  HostOperands(std::shared_ptr<Device> device, std::unique_ptr<Communicator> inner)
      : device_(std::move(device)), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }

  Request start(const Operation& operation, Stream&) override {
    Operation staged = operation;
    const bool fits = operation.source.contiguous() && operation.target.contiguous();
    if (!fits) return inner_->start(operation, lane());  // refused
    Flight flight;
    auto* const source = static_cast<std::byte*>(operation.source.data);
    auto* const target = static_cast<std::byte*>(operation.target.data);
    const std::size_t source_bytes = operation.source.bytes(), target_bytes = operation.target.bytes();
    const bool together =
        source != nullptr && target != nullptr && source < target + target_bytes && target < source + source_bytes;
    if (together) {
      std::byte* const first = std::min(source, target);
      const auto all = static_cast<std::size_t>(std::max(source + source_bytes, target + target_bytes) - first);
      flight.source = in(first, all);
      staged.source.data = flight.source.data() + (source - first);
      staged.target.data = flight.source.data() + (target - first);
    } else {
      if (source_bytes > 0) flight.source = in(source, source_bytes);
      if (target_bytes > 0) flight.target = in(target, target_bytes);
      if (source_bytes > 0) staged.source.data = flight.source.data();
      if (target_bytes > 0) staged.target.data = flight.target.data();
    }
    flight.result = staged.target;
    flight.host = target;
    device_->wait(lane());  // a refused operation gives its memory back at once
    const Request request = inner_->start(staged, lane());
    flights_[{request.slot, request.generation}] = std::move(flight);
    return request;
  }

  bool done(Request request) override { return inner_->done(request); }

  void finish(Request request, Stream&) override {
    if (!request) return;
    inner_->finish(request, lane());
    const auto found = flights_.find({request.slot, request.generation});
    const Flight& flight = found->second;
    const auto bytes = static_cast<std::int64_t>(flight.result.bytes());
    if (bytes > 0) {
      device_->copy(View::vector(flight.result.data, bytes, DType::u8), View::vector(flight.host, bytes, DType::u8),
                    lane());
    }
    device_->wait(lane());
    flights_.erase(found);
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    auto part = inner_->split(colour, key, name);
    return part == nullptr ? nullptr : std::make_unique<HostOperands>(device_, std::move(part));
  }
  [[noreturn]] void abort(int code, std::string_view why) noexcept override {
    inner_->abort(code, why);
    assertion_failed("abort() returned", __FILE__, __LINE__);
  }

 private:
  struct Flight {
    DeviceMemory source, target;
    View result;
    std::byte* host = nullptr;
  };
  Stream& lane() { return device_->lane(Lane::compute); }
  DeviceMemory in(std::byte* data, std::size_t bytes) {
    DeviceMemory memory = device_->reserve(bytes, "operands");
    const auto n = static_cast<std::int64_t>(bytes);
    device_->copy(View::vector(data, n, DType::u8), View::vector(memory.data(), n, DType::u8), lane());
    return memory;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Communicator> inner_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Flight> flights_;
};

}  // namespace espalier::testing_support
