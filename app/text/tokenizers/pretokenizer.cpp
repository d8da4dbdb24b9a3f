#include "text/tokenizers/pretokenizer.hpp"

namespace espalier::app {
namespace {

void find_digits(std::string_view text, std::vector<Span>& matches) {
  matches.clear();
  const std::uint8_t* classes = unicode_classes();
  for (std::size_t at = 0; at < text.size();) {
    const Character next = read_character(text.data() + at, text.data() + text.size());
    if ((classes_of(next, classes) & kNumber) != 0) matches.push_back({at, at + next.length});
    at += next.length;
  }
}

/// Puts matches and the gaps between them together to pieces, going through them in order.
class Assembler {
 public:
  Assembler(SplitStep::Behavior behavior, std::vector<Span>& pieces) : behavior_(behavior), pieces_(pieces) {}

  void add(Span span, bool match) {
    using Behavior = SplitStep::Behavior;
    if (behavior_ == Behavior::removed) {
      if (!match && span.begin < span.end) pieces_.push_back(span);
      return;
    }
    bool joins = false;
    if (behavior_ == Behavior::contiguous) joins = match == last_match_;
    if (behavior_ == Behavior::merged_with_previous) joins = match && !last_match_;
    // The match before is still alone: a match behind a match starts a piece of its own.
    if (behavior_ == Behavior::merged_with_next) joins = !match && last_match_;
    if (joins && !pieces_.empty()) {
      pieces_.back().end = span.end;
    } else {
      pieces_.push_back(span);
    }
    last_match_ = match;
  }

 private:
  SplitStep::Behavior behavior_;
  std::vector<Span>& pieces_;
  bool last_match_ = false;
};

}  // namespace

void Pretokenizer::cut(const SplitStep& step, std::string_view text, SplitScratch::Level& level) {
  if (step.kind == SplitStep::Kind::pattern) {
    step.pattern->find_all(text, level.matches);
  } else {
    find_digits(text, level.matches);
  }
  level.pieces.clear();
  const auto behavior = step.kind == SplitStep::Kind::digits ? SplitStep::Behavior::contiguous : step.behavior;
  Assembler pieces(behavior, level.pieces);
  std::size_t done = 0;
  for (const Span& match : level.matches) {
    if (done < match.begin) pieces.add({done, match.begin}, step.invert);
    pieces.add(match, !step.invert);
    done = match.end;
  }
  if (done < text.size()) pieces.add({done, text.size()}, step.invert);
}

}  // namespace espalier::app
