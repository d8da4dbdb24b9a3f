#include "text/byte_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;  // packed bytes read at a time
constexpr std::string_view kGzipMagic = "\x1F\x8B", kZstdMagic = "\x28\xB5\x2F\xFD";

class PlainSource final : public ByteSource {
 public:
  PlainSource(const std::filesystem::path& file, std::int64_t offset)
      : path_(full_path(file)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), at_(offset) {
    if (descriptor_ < 0) throw IoError(path_, "cannot be opened for reading", errno);
    if (offset > 0 && ::lseek(descriptor_, offset, SEEK_SET) < 0) {
      const int error = errno;
      ::close(descriptor_);
      throw IoError(path_, "cannot be read from byte " + std::to_string(offset), error);
    }
  }
  ~PlainSource() override { ::close(descriptor_); }

  std::size_t read(char* to, std::size_t bytes) override {
    for (;;) {
      const ssize_t got = ::read(descriptor_, to, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(path_, "cannot be read at byte " + std::to_string(at_), errno);
      at_ += got;
      read_ += got;
      return static_cast<std::size_t>(got);
    }
  }
  std::int64_t file_bytes() const override { return read_; }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t at_, read_ = 0;
};

/// Bytes of a file through a buffer that an unpacker works off.
class PackedInput {
 public:
  PackedInput(std::string path, std::unique_ptr<ByteSource> source, std::string first)
      : path_(std::move(path)), source_(std::move(source)), buffer_(std::move(first)) {
    end_ = buffer_.size();
    buffer_.resize(kBlock);
  }
  const char* data() const { return buffer_.data() + start_; }
  std::size_t size() const { return end_ - start_; }
  void take(std::size_t bytes) { start_ += bytes; }
  /// More bytes behind an empty buffer; false at the end of the file.
  bool fill() {
    start_ = 0;
    end_ = source_->read(buffer_.data(), buffer_.size());
    return end_ > 0;
  }
  std::int64_t file_bytes() const { return source_->file_bytes(); }
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError(path_ + ": " + what + " near byte " +
                  std::to_string(source_->file_bytes() - static_cast<std::int64_t>(size())));
  }

 private:
  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  std::size_t start_ = 0, end_ = 0;
};

class PipeSource final : public ByteSource {
 public:
  explicit PipeSource(PackedInput input) : input_(std::move(input)) {}
  std::size_t read(char* to, std::size_t bytes) override {
    if (input_.size() == 0 && !input_.fill()) return 0;
    const std::size_t count = std::min(bytes, input_.size());
    std::memcpy(to, input_.data(), count);
    input_.take(count);
    return count;
  }
  std::int64_t file_bytes() const override { return input_.file_bytes(); }

 private:
  PackedInput input_;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(PackedInput input) : input_(std::move(input)) {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) input_.fail("gzip cannot be started");  // 16: gzip headers only
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

  std::size_t read(char* to, std::size_t bytes) override {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, std::size_t{1} << 30));
    const uInt asked = stream_.avail_out;
    while (stream_.avail_out == asked) {
      const bool more = input_.size() > 0 || input_.fill();  // without more, what was unpacked before may still come
      if (between_members_ && (!more || only_padding())) return 0;
      between_members_ = false;
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.data()));  // zlib reads only
      stream_.avail_in = static_cast<uInt>(input_.size());
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      input_.take(input_.size() - stream_.avail_in);
      if (result == Z_STREAM_END) {
        ::inflateReset(&stream_);
        between_members_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        input_.fail("gzip data are damaged (" + std::string(stream_.msg != nullptr ? stream_.msg : "unreadable") + ")");
      } else if (!more && stream_.avail_out == asked) {
        input_.fail("ends within its gzip data; the file is not whole,");
      }
    }
    return asked - stream_.avail_out;
  }
  std::int64_t file_bytes() const override { return input_.file_bytes(); }

 private:
  /// Zeros behind the last member, as tapes and some writers leave them.
  bool only_padding() {
    do {
      while (input_.size() > 0 && *input_.data() == 0) input_.take(1);
    } while (input_.size() == 0 && input_.fill());
    return input_.size() == 0;
  }

  PackedInput input_;
  z_stream stream_{};
  bool between_members_ = true;
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(PackedInput input)
      : input_(std::move(input)), stream_(::ZSTD_createDStream(), ::ZSTD_freeDStream) {
    if (stream_ == nullptr) input_.fail("zstd cannot be started");
  }
  std::size_t read(char* to, std::size_t bytes) override {
    ZSTD_outBuffer out{to, bytes, 0};
    while (out.pos == 0) {
      const bool more = input_.size() > 0 || input_.fill();  // without more, what was unpacked before may still come
      if (!more && !within_frame_) return 0;
      ZSTD_inBuffer in{input_.data(), input_.size(), 0};
      const std::size_t result = ::ZSTD_decompressStream(stream_.get(), &out, &in);
      if (::ZSTD_isError(result) != 0) {
        input_.fail(std::string("zstd data cannot be read (") + ::ZSTD_getErrorName(result) + ")");
      }
      within_frame_ = result != 0;
      input_.take(in.pos);
      if (!more && within_frame_ && out.pos == 0) input_.fail("ends within its zstd data; the file is not whole,");
    }
    return out.pos;
  }
  std::int64_t file_bytes() const override { return input_.file_bytes(); }

 private:
  PackedInput input_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool within_frame_ = false;
};

Packing packing_of_bytes(std::string_view first) {
  if (first.starts_with(kGzipMagic)) return Packing::gzip;
  return first.starts_with(kZstdMagic) ? Packing::zstd : Packing::none;
}

/// The first bytes, as many as tell the packing.
std::string first_bytes(ByteSource& source) {
  std::string first(kZstdMagic.size(), '\0');
  std::size_t have = 0;
  while (have < first.size()) {
    const std::size_t got = source.read(first.data() + have, first.size() - have);
    if (got == 0) break;
    have += got;
  }
  first.resize(have);
  return first;
}

Packing checked_packing(const std::filesystem::path& file, std::string_view first) {
  const Packing packing = packing_of_bytes(first);
  const std::string extension = file.extension().string();
  const char* named = extension == ".gz" && packing != Packing::gzip    ? "gzip"
                      : extension == ".zst" && packing != Packing::zstd ? "zstd"
                                                                        : nullptr;
  if (named != nullptr) {
    throw IoError(full_path(file) + ": is named " + extension + ", but does not start as " + named +
                  " data do; unpack it, or give it the name of what it is");
  }
  return packing;
}

}  // namespace

std::string full_path(const std::filesystem::path& file) {
  return std::filesystem::absolute(file).lexically_normal().string();
}

std::filesystem::path unpacked_name(const std::filesystem::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".gz" || extension == ".zst" ? std::filesystem::path(file).replace_extension() : file;
}

Packing packing_of(const std::filesystem::path& file) {
  PlainSource source(file, 0);
  return checked_packing(file, first_bytes(source));
}

std::unique_ptr<ByteSource> open_plain(const std::filesystem::path& file, std::int64_t offset) {
  return std::make_unique<PlainSource>(file, offset);
}

std::unique_ptr<ByteSource> open_unpacked(const std::filesystem::path& file) {
  auto source = std::make_unique<PlainSource>(file, 0);
  std::string first = first_bytes(*source);
  const Packing packing = checked_packing(file, first);
  PackedInput input(full_path(file), std::move(source), std::move(first));
  switch (packing) {
    case Packing::gzip:
      return std::make_unique<GzipSource>(std::move(input));
    case Packing::zstd:
      return std::make_unique<ZstdSource>(std::move(input));
    case Packing::none:
      break;
  }
  return std::make_unique<PipeSource>(std::move(input));
}

}  // namespace espalier::app
