#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizers/pretokenizer.hpp"
#include "text/tokenizers/tokenizer_file.hpp"

namespace espalier::app {

/// Pieces of text and how often each occurs.
class PieceCounts {
 public:
  /// Longer pieces (they have no place to split) are cut between characters for learning, which keeps its time linear.
  static constexpr std::size_t kLongest = 4096;

  explicit PieceCounts(SplitStep::Kind pattern) { pretokenizer_.add({pattern, {}, false, {}}); }

  void add(std::string_view text);

  struct Entry {
    std::string piece;
    std::int64_t count;
  };
  /// All of them, sorted by their bytes, so that what is learned depends on the texts alone. Empties the counts.
  std::vector<Entry> take();

  std::int64_t pieces() const { return pieces_; }
  std::size_t distinct() const { return counts_.size(); }

 private:
  void count(std::string_view piece);

  Pretokenizer pretokenizer_;
  SplitScratch scratch_;
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> counts_;
  std::int64_t pieces_ = 0;
};

/// A vocabulary of byte-level BPE. Ids: special tokens, then the bytes in the order of their symbols, then what the
/// merges make in their order.
struct LearnedVocabulary {
  std::vector<std::string> special;
  std::vector<std::string> tokens;  ///< bytes of the tokens after the special ones
  std::vector<std::pair<std::string, std::string>> merges;

  std::size_t size() const { return special.size() + tokens.size(); }
};

/// Learns by merging the most frequent pair again and again; of equal ones that of the smallest ids. The result is that
/// of Hugging Face's BpeTrainer with the byte alphabet. Time is about that of the occurrences each merge changes.
/// @param vocab_size  special tokens included; fewer come out when no pair occurs `least` times any more.
/// @throws ConfigError when vocab_size has no room for the special tokens and 256 bytes.
LearnedVocabulary learn_vocabulary(std::vector<PieceCounts::Entry> pieces, std::vector<std::string> special,
                                   std::int64_t vocab_size, std::int64_t least);

/// The text of a tokenizer.json.
/// @param pattern  gpt2 or bloom: what the pieces were split by.
std::string tokenizer_json(const LearnedVocabulary& vocabulary, SplitStep::Kind pattern);

}  // namespace espalier::app
