#include "npy.hpp"

#include <charconv>
#include <cstring>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::size_t kAlignment = 64;  // numpy pads the header to it

// The value behind "'key':" in the header, which is a Python dictionary written by numpy.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  const auto at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view rest = header.substr(at + key.size() + 3);
  const auto first = rest.find_first_not_of(' ');
  if (first == std::string_view::npos) {
    return std::nullopt;
  }
  rest.remove_prefix(first);
  const char close = rest.front() == '(' ? ')' : rest.front() == '\'' ? '\'' : ',';
  const auto end = rest.find(close, 1);
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  return close == ',' ? rest.substr(0, end) : rest.substr(1, end - 1);
}

std::optional<std::vector<std::int64_t>> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  while (!text.empty()) {
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 0) {
      return std::nullopt;
    }
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const auto next = text.find_first_not_of(", ");
    text.remove_prefix(next == std::string_view::npos ? text.size() : next);
  }
  return shape;
}

}  // namespace

std::optional<NpyArray> NpyArray::open(const std::string& path, std::string& why) {
  NpyArray array;
  try {
    array.mapping_ = MappedFile::open(path);
  } catch (const IoError& error) {
    why = error.what();
    return std::nullopt;
  }
  const auto refuse = [&](const std::string& reason) {
    why = path + ": " + reason;
    return std::nullopt;
  };
  array.mapping_->read_ahead(false);  // opening looks at the header alone; then samples lie anywhere
  const std::size_t size = array.mapping_->size_bytes();
  const auto* bytes = reinterpret_cast<const char*>(array.mapping_->data());
  if (size < kMagic.size() + 2 || std::memcmp(bytes, kMagic.data(), kMagic.size()) != 0) {
    return refuse("is not a .npy file of format 1.0 (" + std::to_string(size) + " bytes)");
  }
  std::uint16_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes + kMagic.size(), sizeof header_bytes);
  const std::size_t start = kMagic.size() + 2 + header_bytes;
  if (size < start) {
    return refuse("is cut inside its header");
  }
  const std::string_view header(bytes + kMagic.size() + 2, header_bytes);
  const auto descr = value_of(header, "descr");
  const auto order = value_of(header, "fortran_order");
  const auto shape_text = value_of(header, "shape");
  const auto shape = shape_text ? parse_shape(*shape_text) : std::nullopt;
  if (!descr || !order || !shape || *order != "False" || descr->size() != 3 || start % 16 != 0) {
    return refuse("its header is not that of a plain C-order array");
  }
  array.descr_ = *descr;
  array.shape_ = *shape;
  const int width = array.descr_[2] - '0';
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return refuse("has elements of type " + array.descr_);
  }
  std::int64_t expected = width;
  for (const std::int64_t extent : array.shape_) {
    if (__builtin_mul_overflow(expected, extent, &expected)) {
      return refuse("promises more elements than a file can hold");
    }
  }
  if (static_cast<std::uint64_t>(expected) != size - start) {
    return refuse("expected " + std::to_string(expected) + " bytes of elements, found " + std::to_string(size - start));
  }
  array.elements_ = expected / width;
  array.data_ = array.mapping_->data() + start;
  array.data_bytes_ = size - start;
  return array;
}

std::string npy_header(std::string_view descr, std::span<const std::int64_t> shape) {
  std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t k = 0; k < shape.size(); ++k) {
    text += (k == 0 ? "" : " ") + std::to_string(shape[k]);
    if (k + 1 < shape.size() || shape.size() == 1) {
      text += ',';
    }
  }
  text += "), }";
  const std::size_t before = kMagic.size() + 2;
  const std::size_t total = (before + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(total - before - text.size() - 1, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  std::string header(kMagic);
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + text;
}

}  // namespace espalier::data_indexed
