#include "text/line_reader.hpp"

#include <algorithm>
#include <cstring>

namespace espalier::app {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;  // large enough that a read call costs nothing per byte

/// Position of the first line end in [from, to), or `to`.
std::size_t line_end(const std::vector<char>& buffer, std::size_t from, std::size_t to) {
  const void* found = std::memchr(buffer.data() + from, '\n', to - from);
  return found == nullptr ? to : static_cast<std::size_t>(static_cast<const char*>(found) - buffer.data());
}

}  // namespace

LineReader::LineReader(ByteSource& source, std::int64_t position, std::int64_t longest)
    : source_(source), position_(position), longest_(static_cast<std::size_t>(longest)), buffer_(2 * kBlock) {}

/// Appends a block behind [start_, end_); false at the end of the source.
bool LineReader::fill() {
  if (start_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + start_, end_ - start_);
    position_ += static_cast<std::int64_t>(start_);
    end_ -= start_;
    start_ = 0;
  }
  if (buffer_.size() - end_ < kBlock) buffer_.resize(buffer_.size() + std::max(kBlock, buffer_.size() / 2));
  const std::size_t got = source_.read(buffer_.data() + end_, kBlock);
  end_ += got;
  return got > 0;
}

LineReader::Line LineReader::take(std::size_t end, std::size_t next) {
  const Line line{{buffer_.data() + start_, end - start_}, position(), end - start_ > longest_};
  start_ = next;
  ++number_;
  return line;
}

void LineReader::drop_tail() {
  if (!in_tail_) return;
  in_tail_ = false;
  do {
    const std::size_t end = line_end(buffer_, start_, end_);
    start_ = end;
    if (end < end_) {
      ++start_;
      return;
    }
  } while (fill());
}

std::optional<LineReader::Line> LineReader::next() {
  drop_tail();
  std::size_t searched = start_;
  for (;;) {
    const std::size_t end = line_end(buffer_, searched, end_);
    if (end < end_) return take(end, end + 1);
    const std::size_t waiting = end_ - start_;
    if (waiting > longest_) {
      in_tail_ = true;
      return take(end_, end_);
    }
    if (!fill()) return waiting == 0 ? std::nullopt : std::optional(take(end_, end_));
    searched = start_ + waiting;
  }
}

bool LineReader::skip_line(std::int64_t limit) {
  for (;;) {
    const std::size_t end = line_end(buffer_, start_, end_);
    start_ = end;
    if (end < end_) {
      ++start_;
      ++number_;
      return position() < limit;
    }
    if (position() >= limit || !fill()) return false;
  }
}

LineReader::Line LineReader::rest() {
  while (end_ - start_ <= longest_ && fill()) {
  }
  return take(end_, end_);
}

bool LineReader::at_end() {
  drop_tail();
  return start_ == end_ && !fill();
}

void LineReader::skip_if(std::string_view bytes) {
  while (end_ - start_ < bytes.size() && fill()) {
  }
  if (std::string_view(buffer_.data() + start_, end_ - start_).starts_with(bytes)) start_ += bytes.size();
}

}  // namespace espalier::app
