#include "output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // large enough that a write call costs nothing per byte

constexpr std::string_view kTemporary = ".tmp.";

std::string host_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) {
    host[0] = '?';
  }
  return host.data();
}

// Unique among hosts that share the folder, processes, and files of one process.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> count{0};
  const std::filesystem::path target(path);
  std::string name = "." + target.filename().string() + std::string(kTemporary) + host_name() + "." +
                     std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
  return (target.parent_path() / name).string();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// The process in the name of a temporary file of `host`; 0 for any other name.
::pid_t process_of(std::string_view name, const std::string& host) {
  const auto at = name.rfind(std::string(kTemporary) + host + ".");
  if (!name.starts_with('.') || at == std::string_view::npos) {
    return 0;
  }
  const std::string_view rest = name.substr(at + kTemporary.size() + host.size() + 1);
  ::pid_t process = 0;
  unsigned count = 0;
  const auto [dot, error] = std::from_chars(rest.data(), rest.data() + rest.size(), process);
  if (error != std::errc() || dot == rest.data() + rest.size() || *dot != '.') {
    return 0;
  }
  const auto [end, count_error] = std::from_chars(dot + 1, rest.data() + rest.size(), count);
  return count_error == std::errc() && end == rest.data() + rest.size() && process > 0 ? process : 0;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  buffer_.reserve(kBufferBytes);
  for (;;) {
    temporary_path_ = temporary_name(path_);
    descriptor_ = ::open(temporary_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      fail_io(path_, "cannot be written in " + folder_of(path_), errno);
    }
    // Whoever tidies up the folder in this moment has the lock, or has removed the file. Without locks nobody does.
    const bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct ::stat status {};
    if (!taken && ::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) {
      return;
    }
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() noexcept {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
    ::unlink(temporary_path_.c_str());
  }
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(data);
  if (buffer_.size() + bytes > kBufferBytes) {
    flush();
  }
  if (bytes >= kBufferBytes) {
    write_out(source, bytes);
  } else {
    buffer_.insert(buffer_.end(), source, source + bytes);
  }
  bytes_ += static_cast<std::int64_t>(bytes);
}

void OutputFile::flush() {
  write_out(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::write_out(const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ::ssize_t written = ::write(descriptor_, data, bytes);
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      const int problem = errno;
      fail_io(path_, "writing failed after " + std::to_string(::lseek(descriptor_, 0, SEEK_CUR)) + " bytes", problem);
    }
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::append_file(const std::string& path, std::int64_t bytes) {
  flush();
  const std::int64_t start = bytes_;
  const int source = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (source < 0) {
    fail_io(path, "cannot be opened for reading", errno);
  }
  std::vector<std::byte> block(kBufferBytes);
  std::int64_t at = 0;
  int error = 0;
  const std::string* failed = &path;
  while (at < bytes && error == 0) {
    const ::off_t data = ::lseek(source, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) {  // only a hole is left
        break;
      }
      error = errno;
      break;
    }
    at = data;
    const ::off_t hole = ::lseek(source, at, SEEK_HOLE);
    const std::int64_t end = std::min<std::int64_t>(bytes, hole < 0 ? bytes : hole);
    while (at < end && error == 0) {
      const auto want = static_cast<std::size_t>(std::min<std::int64_t>(end - at, kBufferBytes));
      const ::ssize_t got = ::pread(source, block.data(), want, at);
      if (got <= 0) {
        error = got < 0 ? errno : EIO;
      } else if (::pwrite(descriptor_, block.data(), static_cast<std::size_t>(got), start + at) != got) {
        error = errno != 0 ? errno : ENOSPC;
        failed = &path_;
      } else {
        at += got;
      }
    }
  }
  ::close(source);
  bytes_ = start + bytes;
  if (error == 0 && (::ftruncate(descriptor_, bytes_) != 0 || ::lseek(descriptor_, bytes_, SEEK_SET) < 0)) {
    error = errno;
    failed = &path_;
  }
  if (error != 0) {
    fail_io(*failed, "copying it failed at byte " + std::to_string(at), error);
  }
}

void OutputFile::sync() {
  flush();
  if (::fsync(descriptor_) != 0) {
    fail_io(path_, "cannot be brought to disk", errno);
  }
}

void OutputFile::rename_into_place() {
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail_io(path_, "cannot be given its name (written as " + temporary_path_ + ")", errno);
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

void remove_abandoned_files(const std::string& folder) {
  const std::string host = host_name();
  std::error_code error;
  std::filesystem::directory_iterator entries(folder.empty() ? "." : folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const ::pid_t process = process_of(entries->path().filename().string(), host);
    if (process == 0 || ::kill(process, 0) == 0 || errno != ESRCH) {
      continue;
    }
    // Containers may share a name of a host and a folder, but not their processes: so the lock decides.
    const int file = ::open(entries->path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(entries->path().c_str());
    }
    if (file >= 0) {
      ::close(file);
    }
  }
}

void sync_folder_of(const std::string& path) {
  const int folder = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);  // some file systems refuse it; the data themselves are on disk already
    ::close(folder);
  }
}

}  // namespace espalier::data_indexed
