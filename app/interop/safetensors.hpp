#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/dtype.hpp"

namespace espalier::app {

/// A tensor in a mapped file. `data` is not aligned to anything: read through read_f32 and read_i64, or copy bytes.
struct FileTensor {
  std::string name;
  std::string type;            ///< as the file says: "F32", "BF16", "I64", …
  std::optional<DType> dtype;  ///< none for types we have no use for ("BOOL", "F8_E4M3", …)
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;

  std::int64_t elements() const;
  /// "[2, 3]".
  std::string shape_text() const;
};

/// A .safetensors file: u64 little-endian header length, a JSON header, then the data
/// (https://huggingface.co/docs/safetensors). The file is mapped, so what is not read costs no memory. The whole header
/// is checked on opening: length, JSON, duplicate names, types, shapes, and that the ranges cover the data exactly,
/// without overlap or hole.
class SafetensorsFile {
 public:
  /// @throws IoError naming the file and, where there is one, the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// In order of their data.
  std::span<const FileTensor> tensors() const { return tensors_; }
  /// Null when there is no such tensor.
  const FileTensor* find(std::string_view name) const;
  /// @throws IoError naming the file, the tensor and the nearest name.
  const FileTensor& at(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Gives back the memory that reading a tensor of this file has mapped; it may be read again.
  void forget(const FileTensor& tensor) const;

 private:
  void read_header(std::string_view header, std::size_t data_begin);

  std::filesystem::path path_;
  const std::byte* map_ = nullptr;
  std::size_t size_ = 0;
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Elements [first, first + dst.size()) of a tensor of F32, F16, BF16 or F64, converted to FP32.
/// @throws IoError for another type.
void read_f32(const FileTensor& tensor, std::int64_t first, std::span<float> dst);
/// All elements of a tensor of I64, I32 or U8.
/// @throws IoError for another type.
std::vector<std::int64_t> read_i64(const FileTensor& tensor);

/// A tensor to be written: name, type and shape are known before its data.
struct TensorHeader {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Writes a .safetensors file tensor by tensor, in the order announced. Appears under its name by a rename in finish(),
/// after it is on disk; without it nothing is left behind.
class SafetensorsWriter {
 public:
  /// @throws IoError naming the path.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorHeader>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next bytes of the data section; a tensor may come in several pieces.
  void write(std::span<const std::byte> bytes);
  /// @throws IoError when the bytes written are not those announced, or the file cannot be completed.
  void finish();

 private:
  struct File;
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
  std::size_t expected_ = 0;
  std::size_t written_ = 0;
};

}  // namespace espalier::app
