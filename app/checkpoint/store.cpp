#include "checkpoint/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

/// N of "step_N", or nothing.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc{} || rest != end || step < 0) return std::nullopt;
  return step;
}

/// What the pointer file says, made fit for a message: "" when there is none.
std::string pointer_text(const fs::path& file) {
  constexpr std::size_t kMost = 64;  // a step's name is shorter
  std::string text(kMost, '\0');
  std::error_code error;
  if (fs::is_directory(file, error)) return "";
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(kMost));
  text.resize(static_cast<std::size_t>(in.gcount()));
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) text.pop_back();
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

CheckpointStore::Found find_checkpoint(const std::string& folder) {
  const fs::path path(folder);
  std::error_code error;
  if (fs::exists(path / "manifest.json", error)) return {path, ""};
  for (const fs::path& place : {path, path / "checkpoints"}) {
    if (auto found = CheckpointStore(place).newest()) return *found;
  }
  throw IoError(fs::absolute(path).lexically_normal().string() +
                ": no checkpoint there; expected a folder with a manifest.json, a folder of step_N folders, or a run's folder");
}

void write_synced(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw IoError(path.string(), "cannot create", errno);
  int error = 0;
  for (std::string_view rest = text; !rest.empty() && error == 0;) {
    const ssize_t written = ::write(file, rest.data(), rest.size());
    if (written < 0) {
      if (errno != EINTR) error = errno;
    } else {
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (error == 0 && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) throw IoError(path.string(), fmt::format("cannot write {} bytes", text.size()), error);
}

void sync_folder(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) throw IoError(path.string(), "cannot open the folder", errno);
  const int error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  if (error != 0 && error != EINVAL) throw IoError(path.string(), "cannot sync the folder", error);
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> found;
  std::error_code error;
  const fs::directory_iterator entries(folder_, error);
  // Only what is not there is empty: a folder that cannot be read now may hold a run, which starting at step 0 would overwrite.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw IoError(folder_.string(), "cannot list the checkpoints in this folder", error.value());
  for (const auto& entry : entries) {
    const auto step = step_of(entry.path().filename().string());
    if (!step) continue;
    const fs::path manifest = entry.path() / "manifest.json";
    const bool complete = fs::exists(manifest, error);
    if (error && error != std::errc::not_a_directory) throw IoError(manifest.string(), "cannot be looked at", error.value());
    if (complete) found.push_back(*step);
  }
  std::ranges::sort(found);
  return found;
}

std::optional<CheckpointStore::Found> CheckpointStore::newest() const {
  std::error_code error;
  const std::vector<std::int64_t> all = steps();
  std::string note;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() == ".tmp") {
      note += fmt::format("{}{}: left by a save that did not finish, ignored", note.empty() ? "" : "; ", entry.path().string());
    }
  }
  const std::string named = pointer_text(folder_ / "latest");
  if (all.empty()) {
    if (!step_of(named)) return std::nullopt;
    throw IoError((folder_ / "latest").string() + ": names " + named + ", but no checkpoint is here; put it back, or start from step 0 " +
                  "with checkpoint.load = \"none\"");
  }
  const auto step = step_of(named);
  if (step && std::ranges::binary_search(all, *step)) return Found{folder_ / named, note};
  const std::string fallback = name_of(all.back());
  note += fmt::format("{}{}: {}; using the newest complete checkpoint, {}", note.empty() ? "" : "; ", (folder_ / "latest").string(),
                      named.empty() ? "missing or empty" : "names \"" + named + "\", which is not here", fallback);
  return Found{folder_ / fallback, note};
}

void CheckpointStore::begin(std::int64_t step) const {
  std::error_code error;
  fs::remove_all(temporary(step), error);
  fs::create_directories(temporary(step), error);
  if (error) throw IoError(temporary(step).string(), "cannot make the folder", error.value());
}

void CheckpointStore::require_room(std::uint64_t bytes) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw IoError(folder_.string(), "cannot make the folder of checkpoints (checkpoint.save)", error.value());
  if (::access(folder_.c_str(), W_OK | X_OK) != 0) throw IoError(folder_.string(), "cannot write checkpoints here (checkpoint.save)", errno);
  require_space(bytes + kSpareBytes);
}

void CheckpointStore::require_space(std::uint64_t bytes) const {
  fs::path existing = folder_;
  while (!existing.empty() && !fs::exists(existing)) existing = existing.parent_path();
  if (existing.empty()) existing = ".";
  struct statvfs info {};
  if (::statvfs(existing.c_str(), &info) != 0) return;  // the write itself will tell
  const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  if (free < bytes) {
    throw IoError(fmt::format("{}: a checkpoint needs {} bytes, {} are free: {} (errno {})", folder_.string(), bytes, free,
                              std::generic_category().message(ENOSPC), ENOSPC));
  }
}

void CheckpointStore::publish(std::int64_t step, std::int64_t keep) const {
  sync_folder(temporary(step));
  const fs::path target = folder_ / name_of(step);
  std::error_code error;
  if (fs::exists(target)) {
    // Written before by a run that was then set back: the new one replaces it, the old one goes only after it is out of the way.
    const fs::path old = folder_ / (name_of(step) + ".old.tmp");
    fs::remove_all(old, error);
    fs::rename(target, old, error);
    if (error) throw IoError(target.string(), "cannot move the old checkpoint away", error.value());
    fs::rename(temporary(step), target, error);
    std::error_code ignored;
    fs::remove_all(old, ignored);
  } else {
    fs::rename(temporary(step), target, error);
  }
  if (error) throw IoError(target.string(), "cannot publish the checkpoint", error.value());
  write_synced(folder_ / "latest.tmp", name_of(step) + "\n");
  fs::rename(folder_ / "latest.tmp", folder_ / "latest", error);
  if (error) throw IoError((folder_ / "latest").string(), "cannot move the pointer", error.value());
  sync_folder(folder_);
  remove_old(step, keep);
}

void CheckpointStore::remove_old(std::int64_t published, std::int64_t keep) const {
  if (keep <= 0) return;
  // A run that was set back, or started anew, finds higher steps than it writes: those are not its own to remove before it has come past.
  std::vector<std::int64_t> all = steps();
  std::erase_if(all, [published](std::int64_t step) { return step >= published; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) <= all.size(); ++i) {
    // Renamed first, so that a reader never meets half a checkpoint.
    const fs::path path = folder_ / name_of(all[i]);
    const fs::path gone = folder_ / (name_of(all[i]) + ".old.tmp");
    std::error_code error;
    fs::rename(path, gone, error);
    fs::remove_all(error ? path : gone, error);
  }
}

}  // namespace espalier::app
