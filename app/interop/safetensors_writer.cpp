#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "espalier/error.hpp"
#include "interop/safetensors.hpp"

namespace espalier::app {
namespace {

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::u8:
      return "U8";
  }
  return "";
}

}  // namespace

struct SafetensorsWriter::File {
  std::filesystem::path partial;
  std::FILE* stream = nullptr;
  bool complete = false;

  explicit File(const std::filesystem::path& path) : partial(path.string() + ".partial") {
    stream = std::fopen(partial.c_str(), "wb");
    if (stream == nullptr) throw IoError(partial.string(), "cannot create", errno);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (stream != nullptr) std::fclose(stream);
    std::error_code ignored;
    if (!complete) std::filesystem::remove(partial, ignored);
  }
  void write(const void* data, std::size_t bytes) {
    if (bytes != 0 && std::fwrite(data, 1, bytes, stream) != bytes)
      throw IoError(partial.string(), "cannot write", errno);
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorHeader>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(std::make_unique<File>(path)) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorHeader& tensor : tensors) {
    std::size_t bytes = size_of(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) bytes *= static_cast<std::size_t>(dim);
    header[tensor.name] = {
        {"dtype", type_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {expected_, expected_ + bytes}}};
    expected_ += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts at a multiple of eight
  const std::uint64_t length = text.size();
  file_->write(&length, sizeof length);
  file_->write(text.data(), text.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_->write(bytes.data(), bytes.size());
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  if (written_ != expected_) {
    throw IoError(fmt::format("{}: {} bytes of data announced, {} written", path_.string(), expected_, written_));
  }
  const bool synced = std::fflush(file_->stream) == 0 && ::fsync(::fileno(file_->stream)) == 0;
  const int sync_error = errno;
  std::FILE* stream = std::exchange(file_->stream, nullptr);
  if (std::fclose(stream) != 0 && synced) throw IoError(file_->partial.string(), "cannot write", errno);
  if (!synced) throw IoError(file_->partial.string(), "cannot write", sync_error);
  std::error_code error;
  std::filesystem::rename(file_->partial, path_, error);
  if (error) throw IoError(path_.string(), "cannot rename into place", error.value());
  file_->complete = true;
}

}  // namespace espalier::app
