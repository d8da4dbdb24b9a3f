#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "fail.hpp"

namespace espalier::data_indexed {

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for a writer
  if (descriptor < 0) {
    fail_io(path, "cannot be opened for reading", errno);
  }
  struct ::stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    ::close(descriptor);
    fail_io(path, "its size cannot be read", error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail_io(path, "is not a regular file");
  }
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  void* address = nullptr;
  if (size_bytes > 0) {  // mmap refuses a length of 0
    address = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (address == MAP_FAILED) {
    fail_io(path, "cannot be mapped (" + std::to_string(size_bytes) + " bytes)", error);
  }
  std::shared_ptr<MappedFile> file(new MappedFile(path, static_cast<const std::byte*>(address), size_bytes));
  const auto time = [](const ::timespec& at) { return std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec); };
  file->identity_ = std::to_string(size_bytes) + " bytes, inode " + std::to_string(status.st_ino) + ", modified " +
                    time(status.st_mtim) + ", changed " + time(status.st_ctim);
  file->changed_seconds_ = status.st_ctim.tv_sec;
  return file;
}

void MappedFile::read_ahead(bool wanted) const {
  if (data_ != nullptr) {
    ::madvise(const_cast<std::byte*>(data_), size_bytes_, wanted ? MADV_NORMAL : MADV_RANDOM);
  }
}

void MappedFile::fetch(std::size_t offset, std::size_t bytes) const {
  if (data_ == nullptr) {
    return;
  }
  const std::size_t before = offset % static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // it wants whole pages
  ::madvise(const_cast<std::byte*>(data_) + offset - before, bytes + before, MADV_WILLNEED);
}

void MappedFile::forget() const {
  if (data_ != nullptr) {
    ::madvise(const_cast<std::byte*>(data_), size_bytes_, MADV_DONTNEED);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_bytes_);
  }
}

}  // namespace espalier::data_indexed
