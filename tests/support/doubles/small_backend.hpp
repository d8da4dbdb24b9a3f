// Another backend's kernels on a device that has only so much memory for one purpose: what is asked for, granted and
// refused is counted, nothing large is ever touched.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "espalier/backend.hpp"
#include "espalier/error.hpp"

namespace espalier::testing_support {

class SmallDevice final : public Device {
 public:
  SmallDevice(Device& real, std::string purpose, std::size_t budget)
      : real_(real), purpose_(std::move(purpose)), left_(budget) {}

  std::size_t granted() const { return granted_; }

  std::string_view name() const override { return real_.name(); }
  bool host_accessible() const override { return real_.host_accessible(); }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override {
    if (purpose == purpose_) {
      if (bytes > left_)
        throw DeviceError("small: only " + std::to_string(left_) + " bytes are free; buy a larger one");
      left_ -= bytes;
      granted_ += bytes;
    }
    return real_.reserve(bytes, purpose);
  }
  Stream& lane(Lane lane) override { return real_.lane(lane); }
  void order(Stream& first, Stream& then) override { real_.order(first, then); }
  void copy(const View& from, const View& to, Stream& stream) override { real_.copy(from, to, stream); }
  void fill_zero(const View& view, Stream& stream) override { real_.fill_zero(view, stream); }
  void wait(Stream& stream) override { real_.wait(stream); }
  std::vector<MemoryUse> memory_use() const override { return real_.memory_use(); }

 protected:
  void release(void*, std::size_t) noexcept override {}  // the real one owns all of it

 private:
  Device& real_;
  std::string purpose_;
  std::size_t left_, granted_ = 0;
};

class SmallBackend final : public Backend {
 public:
  /// @param real  must outlive this.
  SmallBackend(Backend& real, std::string purpose, std::size_t budget)
      : real_(real), device_(real.device(), std::move(purpose), budget) {}
  std::string description() const override { return real_.description(); }
  SmallDevice& device() override { return device_; }
  const KernelSet& kernels() override { return real_.kernels(); }
  Reason supports(const Precision& precision) const override { return real_.supports(precision); }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return real_.wrap(std::move(communicator));
  }

 private:
  Backend& real_;
  SmallDevice device_;
};

}  // namespace espalier::testing_support
