#include "interop/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostHeader = std::size_t{100} << 20;  // the format's own limit

struct TypeInfo {
  std::string_view name;
  std::size_t bytes;
  std::optional<DType> dtype;
};

constexpr TypeInfo kTypes[] = {{"F64", 8, DType::f64},   {"F32", 4, DType::f32}, {"F16", 2, DType::f16},
                               {"BF16", 2, DType::bf16}, {"I64", 8, DType::i64}, {"I32", 4, DType::i32},
                               {"I16", 2, {}},           {"I8", 1, {}},          {"U8", 1, DType::u8},
                               {"U16", 2, {}},           {"U32", 4, {}},         {"U64", 8, {}},
                               {"BOOL", 1, {}},          {"F8_E4M3", 1, {}},     {"F8_E5M2", 1, {}}};

/// The number of a JSON value that must be an integer of at least 0.
std::optional<std::size_t> size_in(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::size_t>(number);
}

/// Notes a key that comes twice in the header or in one of its entries: the second would hide the first. The format is
/// two tables deep, with arrays in them; what is deeper is refused before it grows.
class HeaderWatch {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (depth > kDeepest) throw IoError("nested too deeply");
    if (event == Json::parse_event_t::object_start && depth < kDeepest) keys_[depth].clear();
    if (event == Json::parse_event_t::key && depth <= kDeepest) {
      const auto name = value.get<std::string>();
      if (depth == 1) tensor_ = name;
      if (!keys_[depth - 1].insert(name).second && twice_.empty()) {
        twice_ = depth == 1 ? fmt::format("tensor \"{}\" occurs twice in the header", name)
                            : fmt::format("tensor \"{}\": \"{}\" occurs twice", tensor_, name);
      }
    }
    return true;
  }
  const std::string& twice() const { return twice_; }

 private:
  static constexpr int kDeepest = 3;
  std::array<std::set<std::string>, kDeepest> keys_;
  std::string tensor_, twice_;
};

Json parse_header(std::string_view text, const std::string& path) {
  if (text.empty() || text.front() != '{')
    throw IoError(path + ": the header is no JSON object; is it a .safetensors file?");
  HeaderWatch watch;
  Json header;
  try {
    header = Json::parse(text, std::ref(watch));
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: the header is no JSON ({}); is it a .safetensors file?", path, error.what()));
  } catch (const IoError& error) {
    throw IoError(fmt::format("{}: the header is {}; is it a .safetensors file?", path, error.what()));
  }
  if (!watch.twice().empty()) throw IoError(path + ": " + watch.twice());
  return header;
}

FileTensor read_entry(const std::string& name, const Json& entry, const std::string& path, std::size_t data_bytes,
                      std::size_t& begin) {
  const auto bad = [&](const std::string& what) {
    return IoError(fmt::format("{}: tensor \"{}\": {}", path, name, what));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
      !entry["dtype"].is_string() || !entry["shape"].is_array()) {
    throw bad("the header needs dtype, shape and data_offsets");
  }
  FileTensor tensor;
  tensor.name = name;
  tensor.type = entry["dtype"].get<std::string>();
  const auto type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeInfo& t) { return t.name == tensor.type; });
  if (type == std::end(kTypes)) throw bad(fmt::format("unknown dtype \"{}\"", tensor.type));
  tensor.dtype = type->dtype;
  std::size_t bytes = type->bytes;
  for (const Json& dim : entry["shape"]) {
    const auto size = size_in(dim);
    if (!size) throw bad("a dimension of its shape is no number of at least 0");
    if (__builtin_mul_overflow(bytes, *size, &bytes)) throw bad("its shape overflows");
    tensor.shape.push_back(static_cast<std::int64_t>(*size));
  }
  const Json& offsets = entry["data_offsets"];
  const bool pair = offsets.is_array() && offsets.size() == 2;
  const auto first = pair ? size_in(offsets[0]) : std::nullopt;
  const auto end = pair ? size_in(offsets[1]) : std::nullopt;
  if (!first || !end || *first > *end || *end > data_bytes) {
    throw bad(fmt::format("data_offsets {} do not lie in the file's {} bytes of data: is it truncated?", offsets.dump(),
                          data_bytes));
  }
  if (*end - *first != bytes) {
    throw bad(fmt::format("{} of {} takes {} bytes, its data_offsets span {}", tensor.type, tensor.shape_text(), bytes,
                          *end - *first));
  }
  tensor.bytes = bytes;
  begin = *first;
  return tensor;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::int64_t FileTensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) n *= dim;
  return n;
}

std::string FileTensor::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError(path.string(), "cannot open", errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw IoError(path.string() + ": is no regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ < 8) {
    ::close(fd);
    throw IoError(fmt::format("{}: {} bytes are too few for a .safetensors file", path.string(), size_));
  }
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int mapping_error = errno;
  ::close(fd);
  if (map == MAP_FAILED) throw IoError(path.string(), "cannot map", mapping_error);
  map_ = static_cast<const std::byte*>(map);
  try {
    const auto length = load<std::uint64_t>(map_);
    if (length > size_ - 8 || length > kMostHeader) {
      throw IoError(
          fmt::format("{}: a header of {} bytes does not fit in a file of {}: truncated, or no .safetensors file",
                      path.string(), length, size_));
    }
    read_header({reinterpret_cast<const char*>(map_ + 8), static_cast<std::size_t>(length)},
                8 + static_cast<std::size_t>(length));
  } catch (...) {
    ::munmap(const_cast<std::byte*>(map_), size_);
    throw;
  }
}

void SafetensorsFile::read_header(std::string_view text, std::size_t data_begin) {
  const std::string path = path_.string();
  const Json header = parse_header(text, path);
  const std::size_t data_bytes = size_ - data_begin;
  std::vector<std::pair<std::size_t, FileTensor>> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) throw IoError(path + ": __metadata__ is no JSON object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) throw IoError(fmt::format("{}: __metadata__.{} is no string", path, key));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    std::size_t begin = 0;
    FileTensor tensor = read_entry(name, entry, path, data_bytes, begin);
    tensor.data = map_ + data_begin + begin;
    found.emplace_back(begin, std::move(tensor));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.bytes) < std::pair(b.first, b.second.bytes);
  });
  std::size_t at = 0;
  for (auto& [begin, tensor] : found) {
    if (begin != at) {
      throw IoError(fmt::format(
          "{}: tensor \"{}\" starts at byte {} of the data where {} is expected: ranges overlap or leave a hole", path,
          tensor.name, begin, at));
    }
    at = begin + tensor.bytes;
    tensors_.push_back(std::move(tensor));
  }
  if (at != data_bytes) {
    throw IoError(fmt::format("{}: {} bytes of data, but its tensors take {}", path, data_bytes, at));
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), size_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      map_(std::exchange(other.map_, nullptr)),
      size_(other.size_),
      tensors_(std::move(other.tensors_)),
      metadata_(std::move(other.metadata_)) {}

void SafetensorsFile::forget(const FileTensor& tensor) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.bytes;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  for (const FileTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const FileTensor& SafetensorsFile::at(std::string_view name) const {
  if (const FileTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const FileTensor& tensor : tensors_) names.push_back(tensor.name);
  const std::string nearest = nearest_name(name, names);
  throw IoError(fmt::format("{}: has no tensor \"{}\"{}", path_.string(), name,
                            nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
}

void read_f32(const FileTensor& tensor, std::int64_t first, std::span<float> dst) {
  ESPALIER_ASSERT(first >= 0 && first + static_cast<std::int64_t>(dst.size()) <= tensor.elements());
  const auto convert = [&]<class T>(T, auto&& to) {
    const std::byte* at = tensor.data + static_cast<std::size_t>(first) * sizeof(T);
    for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = to(load<T>(at + i * sizeof(T)));
  };
  const auto widen = [](auto value) { return to_float(value); };
  if (tensor.dtype == DType::f32) return convert(float{}, widen);
  if (tensor.dtype == DType::bf16) return convert(BFloat16{}, widen);
  if (tensor.dtype == DType::f16) return convert(Float16{}, widen);
  if (tensor.dtype == DType::f64) return convert(double{}, [](double value) { return static_cast<float>(value); });
  throw IoError(fmt::format("tensor \"{}\" has type {}; a floating-point type is needed", tensor.name, tensor.type));
}

std::vector<std::int64_t> read_i64(const FileTensor& tensor) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.elements()));
  const auto convert = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int64_t>(load<T>(tensor.data + i * sizeof(T)));
    }
  };
  if (tensor.dtype == DType::i64) {
    convert(std::int64_t{});
  } else if (tensor.dtype == DType::i32) {
    convert(std::int32_t{});
  } else if (tensor.dtype == DType::u8) {
    convert(std::uint8_t{});
  } else {
    throw IoError(fmt::format("tensor \"{}\" has type {}; integers are needed (I64)", tensor.name, tensor.type));
  }
  return values;
}

}  // namespace espalier::app
