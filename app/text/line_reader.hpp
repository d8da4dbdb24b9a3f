#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/byte_source.hpp"

namespace espalier::app {

/// Lines of a source. Memory: the longest line that is allowed and two blocks, however long the lines are.
class LineReader {
 public:
  struct Line {
    std::string_view
        text;  ///< without its end; lives until the next call. Of one that is too long: what it begins with
    std::int64_t start = 0;  ///< position of its first byte
    bool too_long = false;
  };

  /// @param position  of the source's first byte, for Line::start.
  /// @param longest  bytes a line may have.
  LineReader(ByteSource& source, std::int64_t position, std::int64_t longest);

  /// The next line, or nothing at the end. One that is too long is given as soon as that is known.
  std::optional<Line> next();
  /// Drops bytes until a line begins at or behind the present position, or `limit` is reached; true for the former.
  bool skip_line(std::int64_t limit);
  /// All that is left, or its beginning and `too_long`.
  Line rest();
  bool at_end();
  /// Where the next line begins.
  std::int64_t position() const { return position_ + static_cast<std::int64_t>(start_); }
  /// Drops these bytes when the next line begins with them.
  void skip_if(std::string_view bytes);
  /// Lines given or skipped so far: the number of the last one, from 1.
  std::int64_t number() const { return number_; }

 private:
  bool fill();
  Line take(std::size_t end, std::size_t next);
  void drop_tail();

  ByteSource& source_;
  std::int64_t position_;  // of buffer_[0]
  std::size_t longest_;
  std::vector<char> buffer_;
  std::size_t start_ = 0, end_ = 0;
  std::int64_t number_ = 0;
  bool in_tail_ = false;  // the last line given was too long: the rest of it comes next
};

}  // namespace espalier::app
