#include "telemetry/record_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "espalier/error.hpp"

namespace espalier::app {

RecordFile::RecordFile(std::filesystem::path path) : path_(std::move(path)), name_(path_.string()) {
  file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) throw IoError(name_, "cannot open for appending", errno);
}

RecordFile::~RecordFile() {
  if (file_ >= 0) ::close(file_);
}

void RecordFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw IoError(name_, "cannot append", errno);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RecordFile::sync() {
  if (::fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS) throw IoError(name_, "cannot sync", errno);
}

bool RecordFile::is_regular() const {
  struct stat info {};
  return ::fstat(file_, &info) == 0 && S_ISREG(info.st_mode);
}

bool RecordFile::begins_with(std::string_view text) const {
  if (!is_regular()) return true;
  std::string begin(text.size(), '\0');
  std::ifstream in(path_, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(in.gcount()));
  return text.starts_with(begin);
}

std::string RecordFile::read_all() const {
  std::ifstream in(path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void RecordFile::truncate(std::size_t bytes) {
  if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) throw IoError(name_, "cannot truncate", errno);
}

}  // namespace espalier::app
