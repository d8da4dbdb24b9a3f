#include "text/tokenizers/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <queue>

#include "espalier/error.hpp"
#include "text/tokenizers/byte_symbols.hpp"

namespace espalier::app {

void PieceCounts::add(std::string_view text) {
  pretokenizer_.split(text, scratch_, [&](std::string_view piece) {
    while (piece.size() > kLongest) {
      std::size_t cut = kLongest;
      while (cut > kLongest - 4 && (static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) --cut;
      count(piece.substr(0, cut));
      piece.remove_prefix(cut);
    }
    count(piece);
  });
}

void PieceCounts::count(std::string_view piece) {
  ++pieces_;
  const auto known = counts_.find(piece);
  if (known != counts_.end()) {
    ++known->second;
  } else {
    counts_.emplace(piece, 1);
  }
}

std::vector<PieceCounts::Entry> PieceCounts::take() {
  std::vector<Entry> entries;
  entries.reserve(counts_.size());
  while (!counts_.empty()) {
    auto node = counts_.extract(counts_.begin());
    entries.push_back({std::move(node.key()), node.mapped()});
  }
  std::ranges::sort(entries, {}, &Entry::piece);
  return entries;
}

namespace {

struct Pair {
  std::uint32_t left = 0, right = 0;
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  ///< those it may occur in: some have lost it since
  std::uint32_t queued = 0;          ///< the round that has put it into the queue
};

/// In the queue: what a pair's count was. The greatest count comes first, of equal ones the smallest pair.
struct Candidate {
  std::int64_t count;
  std::uint64_t key;
  std::uint32_t pair;

  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : key > other.key; }
};

struct Word {
  std::size_t start;
  std::uint32_t length;
  std::uint32_t seen = 0;  ///< the round that has changed it
  std::int64_t count;
};

class Learner {
 public:
  Learner(std::vector<PieceCounts::Entry> pieces, LearnedVocabulary& result) : result_(result) {
    std::array<std::uint32_t, 256> id_of_byte{};
    // A merge may spell out a special token: then it makes that one, as no text may have two ids.
    for (const std::string& token : result_.special) add_token(bytes_of_symbols(token).value_or(token));
    for (const std::string& token : result_.tokens) {
      id_of_byte[static_cast<unsigned char>(token[0])] = static_cast<std::uint32_t>(texts_.size());
      add_token(token);
    }
    std::size_t bytes = 0;
    for (const auto& entry : pieces) bytes += entry.piece.size();
    symbols_.reserve(bytes);
    words_.reserve(pieces.size());
    for (auto& entry : pieces) {
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(entry.piece.size()), 0, entry.count});
      for (const char byte : entry.piece) symbols_.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
      entry = {};
    }
  }

  void run(std::size_t vocab_size, std::int64_t least) {
    count_pairs();
    while (result_.size() < vocab_size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const std::int64_t now = pairs_[best.pair].count;
      if (now != best.count) {
        if (now > 0) queue_.push({now, best.key, best.pair});
        continue;
      }
      if (now < least) break;
      merge(best.pair);
    }
  }

 private:
  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return (std::uint64_t{left} << 32) | right; }

  void add_token(const std::string& text) {
    ids_.emplace(text, static_cast<std::uint32_t>(texts_.size()));
    texts_.push_back(text);
  }

  std::uint32_t pair_of(std::uint32_t left, std::uint32_t right) {
    const auto [found, made] = pair_index_.try_emplace(key_of(left, right), static_cast<std::uint32_t>(pairs_.size()));
    if (made) pairs_.push_back({left, right, 0, {}, 0});
    return found->second;
  }

  void count_pairs() {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (std::size_t k = word.start; k + 1 < word.start + word.length; ++k) {
        add(pair_of(symbols_[k], symbols_[k + 1]), w, word.count);
      }
    }
    for (std::uint32_t p = 0; p < pairs_.size(); ++p) {
      queue_.push({pairs_[p].count, key_of(pairs_[p].left, pairs_[p].right), p});
    }
  }

  void add(std::uint32_t pair, std::uint32_t word, std::int64_t count) {
    pairs_[pair].count += count;
    auto& words = pairs_[pair].words;
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void merge(std::uint32_t pair) {
    ++round_;
    const std::uint32_t left = pairs_[pair].left, right = pairs_[pair].right;
    result_.merges.emplace_back(texts_[left], texts_[right]);
    // Two pairs may make the same token; it keeps its first id.
    const std::string joined = texts_[left] + texts_[right];
    const auto known = ids_.find(joined);
    const std::uint32_t id = known != ids_.end() ? known->second : static_cast<std::uint32_t>(texts_.size());
    if (known == ids_.end()) {
      add_token(joined);
      result_.tokens.push_back(joined);
    }
    const std::vector<std::uint32_t> words = std::move(pairs_[pair].words);
    pairs_[pair].words = {};
    made_.clear();
    for (const std::uint32_t w : words) {
      if (words_[w].seen == round_) continue;
      words_[w].seen = round_;
      merge_in(w, left, right, id);
    }
    pairs_[pair].count = 0;
    for (const std::uint32_t p : made_) {
      if (pairs_[p].count > 0) queue_.push({pairs_[p].count, key_of(pairs_[p].left, pairs_[p].right), p});
    }
  }

  /// Rewrites a word in place, from left to right, and brings the counts of its pairs up to date.
  void merge_in(std::uint32_t w, std::uint32_t left, std::uint32_t right, std::uint32_t id) {
    Word& word = words_[w];
    std::uint32_t* symbols = symbols_.data() + word.start;
    std::uint32_t out = 0;
    for (std::uint32_t in = 0; in < word.length; ++out) {
      if (in + 1 == word.length || symbols[in] != left || symbols[in + 1] != right) {
        symbols[out] = symbols[in++];
        continue;
      }
      if (out > 0) {
        pairs_[pair_of(symbols[out - 1], left)].count -= word.count;
        make(symbols[out - 1], id, w);
      }
      if (in + 2 < word.length) {
        pairs_[pair_of(right, symbols[in + 2])].count -= word.count;
        make(id, symbols[in + 2], w);
      }
      symbols[out] = id;
      in += 2;
    }
    word.length = out;
  }

  void make(std::uint32_t left, std::uint32_t right, std::uint32_t word) {
    const std::uint32_t pair = pair_of(left, right);
    add(pair, word, words_[word].count);
    if (pairs_[pair].queued != round_) {
      pairs_[pair].queued = round_;
      made_.push_back(pair);
    }
  }

  LearnedVocabulary& result_;
  std::vector<std::string> texts_;  // bytes of each id
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::uint32_t> symbols_;
  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> pair_index_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint32_t> made_;
  std::uint32_t round_ = 0;
};

/// Bytes in the order of the characters that stand for them: how tokenizers sorts its alphabet.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (unsigned byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::ranges::sort(tokens, {},
                    [](const std::string& token) { return symbol_of_byte(static_cast<unsigned char>(token[0])); });
  return tokens;
}

}  // namespace

LearnedVocabulary learn_vocabulary(std::vector<PieceCounts::Entry> pieces, std::vector<std::string> special,
                                   std::int64_t vocab_size, std::int64_t least) {
  LearnedVocabulary result;
  result.special = std::move(special);
  result.tokens = byte_tokens();
  for (const std::string& token : result.special) {
    const auto bytes = bytes_of_symbols(token);
    if (token.empty() || (bytes && bytes->size() == 1)) {
      throw ConfigError("special token \"" + token + "\": expected more than one character");
    }
    if (std::ranges::count(result.special, token) > 1)
      throw ConfigError("special token \"" + token + "\" is given twice");
  }
  if (vocab_size < static_cast<std::int64_t>(result.size()) || vocab_size > 0x7FFFFFFF) {
    throw ConfigError("vocabulary size: expected at least " + std::to_string(result.size()) + ", for 256 bytes and " +
                      std::to_string(result.special.size()) + " special tokens, and at most 2147483647; found " +
                      std::to_string(vocab_size));
  }
  Learner(std::move(pieces), result).run(static_cast<std::size_t>(vocab_size), std::max<std::int64_t>(least, 1));
  return result;
}

}  // namespace espalier::app
