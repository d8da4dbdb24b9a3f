#include <string>
#include <utility>

#include "espalier/device.hpp"
#include "espalier/error.hpp"

namespace espalier {

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) device_->release(data_, bytes_);
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) device_->release(data_, bytes_);
}

DeviceMemory Device::reserve_near_host(std::size_t bytes, std::string_view purpose) {
  if (host_accessible()) return reserve(bytes, purpose);
  throw DeviceError(std::string(name()) + ": " + std::string(purpose) + " (" + std::to_string(bytes) +
                    " bytes) cannot be kept in host memory: this device offers none that its kernels reach; leave the "
                    "offload out");
}

}  // namespace espalier
