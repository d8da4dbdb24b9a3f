#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/random.hpp"

namespace espalier::testing {

/// Where an operand starts and how its rows lie.
struct Placement {
  std::int64_t offset = 0;  ///< elements after a 64-byte border
  std::int64_t gap = 0;     ///< unused elements after each row
};

inline double decode(DType dtype, const std::byte* from) {
  const auto as = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return as(float{});
    case DType::bf16:
      return to_float(as(BFloat16{}));
    case DType::f16:
      return to_float(as(Float16{}));
    case DType::f64:
      return as(double{});
    case DType::i32:
      return as(std::int32_t{});
    case DType::i64:
      return static_cast<double>(as(std::int64_t{}));
    case DType::u8:
      return as(std::uint8_t{});
  }
  return 0;
}

inline void encode(DType dtype, double x, std::byte* to) {
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(x));
    case DType::bf16:
      return put(to_bf16(static_cast<float>(x)));
    case DType::f16:
      return put(to_f16(static_cast<float>(x)));
    case DType::f64:
      return put(x);
    case DType::i32:
      return put(static_cast<std::int32_t>(x));
    case DType::i64:
      return put(static_cast<std::int64_t>(x));
    case DType::u8:
      return put(static_cast<std::uint8_t>(x));
  }
}

/// What a value becomes when it is stored.
inline double rounded(DType dtype, double x) {
  std::byte bytes[8] = {};
  encode(dtype, x, bytes);
  return decode(dtype, bytes);
}

/// A number in [low, high), a function of seed and index.
inline double random_value(std::uint32_t seed, std::int64_t index, double low = -1, double high = 1) {
  const auto words = philox({seed, 0x5eed}, {static_cast<std::uint32_t>(index), 0, 0, 0});
  return low + (high - low) * (words[0] * 0x1p-32);
}

/// A matrix in the memory of the backend under test, with its last known contents on the host. Bytes in front, behind
/// and between the rows are canaries that read() checks.
class Operand {
 public:
  Operand(Backend& backend, DType dtype, std::int64_t rows, std::int64_t cols, Placement placement = {})
      : device_(&backend.device()),
        stream_(&device_->lane(Lane::compute)),
        first_(kMargin + static_cast<std::size_t>(placement.offset) * size_of(dtype)),
        view_{nullptr, rows, cols, cols + placement.gap, dtype} {
    const auto elements = static_cast<std::size_t>(rows * view_.row_stride);
    bytes_.assign(first_ + elements * size_of(dtype) + kMargin, kCanary);
    memory_ = device_->reserve(bytes_.size(), "kernel tests");
    view_.data = memory_.data() + first_;
    set(std::vector<double>(static_cast<std::size_t>(rows * cols), 0.0));
  }

  const View& view() const { return view_; }
  operator const View&() const { return view_; }  // NOLINT: an operand is passed where a kernel takes a view
  DType dtype() const { return view_.dtype; }

  /// Last uploaded or read contents, as stored.
  double operator()(std::int64_t row, std::int64_t col) const { return decode(view_.dtype, host(row, col)); }
  double operator[](std::int64_t i) const { return (*this)(i / view_.cols, i % view_.cols); }

  Operand& set(std::span<const double> values) {
    for (std::int64_t i = 0; i < view_.elements(); ++i) {
      encode(view_.dtype, values[static_cast<std::size_t>(i)], host(i / view_.cols, i % view_.cols));
    }
    device_->copy(host_bytes(), device_bytes(), *stream_);
    device_->wait(*stream_);
    return *this;
  }
  Operand& fill(double value) { return set(std::vector<double>(static_cast<std::size_t>(view_.elements()), value)); }
  Operand& random(std::uint32_t seed, double low = -1, double high = 1) {
    std::vector<double> values(static_cast<std::size_t>(view_.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = random_value(seed, static_cast<std::int64_t>(i), low, high);
    }
    return set(values);
  }

  /// All elements, without a look at the device.
  std::vector<double> values() const {
    std::vector<double> all(static_cast<std::size_t>(view_.elements()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = (*this)[static_cast<std::int64_t>(i)];
    return all;
  }

  /// Fetches the contents and checks that nothing outside the elements was written.
  std::vector<double> read() {
    device_->copy(device_bytes(), host_bytes(), *stream_);
    device_->wait(*stream_);
    const auto row_bytes = static_cast<std::size_t>(view_.cols) * size_of(view_.dtype);
    const auto stride_bytes = static_cast<std::size_t>(view_.row_stride) * size_of(view_.dtype);
    std::size_t overwritten = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const bool element = i >= first_ && (i - first_) / stride_bytes < static_cast<std::size_t>(view_.rows) &&
                           (i - first_) % stride_bytes < row_bytes;
      if (!element && bytes_[i] != kCanary) ++overwritten;
    }
    EXPECT_EQ(overwritten, 0u) << "bytes outside an operand [" << view_.rows << ", " << view_.cols << "] of "
                               << name_of(view_.dtype) << " were written";
    return values();
  }

 private:
  static constexpr std::byte kCanary{0x5a};
  static constexpr std::size_t kMargin = 64;

  std::byte* host(std::int64_t row, std::int64_t col) {
    return bytes_.data() + first_ + static_cast<std::size_t>(row * view_.row_stride + col) * size_of(view_.dtype);
  }
  const std::byte* host(std::int64_t row, std::int64_t col) const { return const_cast<Operand*>(this)->host(row, col); }
  View host_bytes() { return View::vector(bytes_.data(), static_cast<std::int64_t>(bytes_.size()), DType::u8); }
  View device_bytes() { return View::vector(memory_.data(), static_cast<std::int64_t>(bytes_.size()), DType::u8); }

  Device* device_;
  Stream* stream_;
  std::size_t first_;
  View view_;
  std::vector<std::byte> bytes_;
  DeviceMemory memory_;
};

}  // namespace espalier::testing
