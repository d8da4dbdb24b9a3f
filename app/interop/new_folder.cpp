#include "interop/new_folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "checkpoint/store.hpp"
#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

/// "out/" and "out" are the same folder; its temporary neighbour is "out.tmp".
fs::path plain(const fs::path& path) {
  fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

}  // namespace

void require_free(const fs::path& folder, std::uint64_t bytes) {
  fs::path existing = folder;
  std::error_code error;
  while (!existing.empty() && !fs::exists(existing, error) && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  const fs::space_info space = fs::space(existing, error);
  if (error || space.available >= bytes) return;  // where nothing is known the write itself will tell
  throw IoError(fmt::format("{}: {} bytes are to be written, {} are free: {} (errno {})", folder.string(), bytes,
                            space.available, std::generic_category().message(ENOSPC), ENOSPC));
}

void copy_synced(const fs::path& from, const fs::path& to) {
  std::ifstream in(from, std::ios::binary);
  if (!in) throw IoError(from.string(), "cannot open", errno);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw IoError(from.string(), "cannot read", errno);
  write_synced(to, content);
}

NewFolder::NewFolder(const fs::path& target, std::uint64_t bytes)
    : target_(plain(target)), temporary_(target_.string() + ".tmp") {
  std::error_code error;
  if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error))) {
    throw IoError(target_.string() + ": exists already; name a folder that does not, or remove it");
  }
  require_free(target_, bytes);
  fs::remove_all(temporary_, error);
  fs::create_directories(temporary_, error);
  if (error) throw IoError(temporary_.string(), "cannot make the folder", error.value());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!published_) fs::remove_all(temporary_, ignored);
}

void NewFolder::publish() {
  sync_folder(temporary_);
  std::error_code error;
  fs::rename(temporary_, target_, error);
  if (error) throw IoError(target_.string(), "cannot rename the finished folder into place", error.value());
  published_ = true;
  sync_folder(target_.parent_path());
}

}  // namespace espalier::app
