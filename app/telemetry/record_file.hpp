#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::app {

/// An append-only text file that a training step writes to without touching the heap: each record is one write(2), so a killed run
/// leaves whole lines, but possibly for the last one.
class RecordFile {
 public:
  explicit RecordFile(std::filesystem::path path);
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  ~RecordFile();

  const std::filesystem::path& path() const { return path_; }
  /// @throws IoError with path and errno (a full disk).
  void write(std::string_view text);
  void sync();
  /// Whether the file is empty or begins with `text`, as far as it goes; what is no regular file (a pipe, /dev/null) does.
  bool begins_with(std::string_view text) const;
  /// Cuts the file after its last whole line that `keep` accepts; all later lines go. What is no regular file stays as it is.
  template <class Keep>
  void cut_after_last(Keep keep);

 private:
  bool is_regular() const;
  std::string read_all() const;
  void truncate(std::size_t bytes);

  std::filesystem::path path_;
  std::string name_;  ///< path_ as text, made once: messages of a step must not need the heap before they fail
  int file_ = -1;
};

template <class Keep>
void RecordFile::cut_after_last(Keep keep) {
  if (!is_regular()) return;
  const std::string text = read_all();
  std::size_t end = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = text.find('\n', begin);
    if (newline == std::string::npos) break;  // a line the killed run did not finish
    if (keep(std::string_view(text).substr(begin, newline - begin))) end = newline + 1;
    begin = newline + 1;
  }
  truncate(end);
}

}  // namespace espalier::app
