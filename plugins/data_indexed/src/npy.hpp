#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mapped_file.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {

/// A plain array in numpy's .npy format 1.0, mapped: little-endian, C order, no pickled objects.
class NpyArray {
 public:
  /// @param why  what is wrong with the file when the result is empty.
  static std::optional<NpyArray> open(const std::string& path, std::string& why);

  /// numpy's type string: "<i4", "<u4", "<i8", …
  const std::string& descr() const { return descr_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Product of the shape.
  std::int64_t elements() const { return elements_; }
  /// The elements, aligned to 16 bytes; they live as long as `mapping()`.
  const std::byte* data() const { return data_; }
  std::size_t data_bytes() const { return data_bytes_; }
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

 private:
  std::shared_ptr<const MappedFile> mapping_;
  std::string descr_;
  std::vector<std::int64_t> shape_;
  std::int64_t elements_ = 0;
  const std::byte* data_ = nullptr;
  std::size_t data_bytes_ = 0;
};

/// The bytes before the elements, as numpy.save writes them.
std::string npy_header(std::string_view descr, std::span<const std::int64_t> shape);

/// "<i4" and so on, for the integer types of the indices.
template <typename T>
constexpr std::string_view npy_descr() {
  static_assert(std::is_integral_v<T> && sizeof(T) <= 8);
  constexpr std::string_view kSigned[] = {"|i1", "<i2", "<i4", "<i8"};
  constexpr std::string_view kUnsigned[] = {"|u1", "<u2", "<u4", "<u8"};
  constexpr std::size_t kAt = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return std::is_signed_v<T> ? kSigned[kAt] : kUnsigned[kAt];
}

/// Writes header and elements.
template <typename T>
void write_npy(OutputFile& file, std::span<const T> elements, std::span<const std::int64_t> shape) {
  const std::string header = npy_header(npy_descr<T>(), shape);
  file.write(header.data(), header.size());
  file.write(elements.data(), elements.size_bytes());
}

}  // namespace espalier::data_indexed
