#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/pattern.hpp"
#include "text/tokenizers/scanners.hpp"

namespace espalier::app {

/// One step that cuts pieces of text into smaller ones.
struct SplitStep {
  enum class Kind : std::uint8_t {
    gpt2,          ///< GPT-2's pattern, matches and gaps as pieces
    bloom,         ///< BLOOM's pattern, likewise
    pattern,       ///< any other pattern
    digits,        ///< runs of numeric characters apart from the others
    each_digit,    ///< each numeric character by itself
    prefix_space,  ///< a space in front of a piece that has none
  };
  /// What becomes of the matches of a pattern; names and meaning as in tokenizer.json.
  enum class Behavior : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

  Kind kind = Kind::gpt2;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< the gaps are the matches
  std::shared_ptr<const Pattern> pattern;
};

/// Memory of the steps, kept from text to text: one entry a step.
struct SplitScratch {
  struct Level {
    std::vector<Span> matches, pieces;
    std::string prefixed;
  };
  std::vector<Level> levels;
};

/// The steps before merging, one after another. Thread-safe.
class Pretokenizer {
 public:
  void add(SplitStep step) { steps_.push_back(std::move(step)); }

  /// Calls `piece(std::string_view)` with each piece of `text` in order; none is empty.
  template <class Piece>
  void split(std::string_view text, SplitScratch& scratch, const Piece& piece) const {
    if (scratch.levels.size() < steps_.size()) scratch.levels.resize(steps_.size());
    run(0, text, scratch, piece);
  }

 private:
  template <class Piece>
  void run(std::size_t at, std::string_view text, SplitScratch& scratch, const Piece& piece) const {
    if (text.empty()) return;
    if (at == steps_.size()) {
      piece(text);
      return;
    }
    const SplitStep& step = steps_[at];
    if (step.kind == SplitStep::Kind::gpt2) return scan(gpt2_, at, text, scratch, piece);
    if (step.kind == SplitStep::Kind::bloom) return scan(bloom_, at, text, scratch, piece);
    SplitScratch::Level& level = scratch.levels[at];
    if (step.kind == SplitStep::Kind::prefix_space) {
      if (text[0] == ' ') return run(at + 1, text, scratch, piece);
      level.prefixed.assign(1, ' ').append(text);
      return run(at + 1, level.prefixed, scratch, piece);
    }
    cut(step, text, level);
    for (const Span& span : level.pieces) run(at + 1, text.substr(span.begin, span.end - span.begin), scratch, piece);
  }

  /// Scanners need no list of pieces: the next one is asked for when the last is done.
  template <class Scanner, class Piece>
  void scan(const Scanner& scanner, std::size_t at, std::string_view text, SplitScratch& scratch,
            const Piece& piece) const {
    const bool last = at + 1 == steps_.size();
    const char* begin = text.data();
    const char* end = begin + text.size();
    while (begin < end) {
      const char* stop = scanner.next(begin, end);
      const std::string_view found(begin, static_cast<std::size_t>(stop - begin));
      if (last) {
        piece(found);
      } else {
        run(at + 1, found, scratch, piece);
      }
      begin = stop;
    }
  }

  static void cut(const SplitStep& step, std::string_view text, SplitScratch::Level& level);

  std::vector<SplitStep> steps_;
  Gpt2Scanner gpt2_;
  BloomScanner bloom_;
};

}  // namespace espalier::app
