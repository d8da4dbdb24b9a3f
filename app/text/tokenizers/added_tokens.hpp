#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace espalier::app {

/// A token that is found in the text as it stands, before the text is split. The flags are those of tokenizer.json.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< left out when decoding
  bool normalized = false;   ///< looked for in normalised text, as its own normalised form
  bool single_word = false;  ///< not next to a letter, mark, digit or connector
  bool left_strip = false;   ///< takes the white space before it along
  bool right_strip = false;  ///< and after it
};

/// Finds added tokens: from left to right, of several that start at one place the longest, as tokenizers does.
class AddedTokenFinder {
 public:
  /// Adds a token under the form that is looked for; an empty form is never found. An earlier one of the same form
  /// wins.
  void add(const AddedToken& token, std::string_view form);

  bool empty() const { return tokens_.empty(); }

  /// A part of the text: an added token with what it strips, or (id -1) what lies between two.
  struct Part {
    std::size_t begin, end;
    std::int32_t id;
  };
  /// Replaces `parts` by parts that cover the text. Time is that of the text, times the longest token at worst.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Rule {
    std::int32_t id;
    bool single_word, left_strip, right_strip;
  };
  struct Found {
    std::size_t length = 0;
    std::uint32_t rule = 0;
  };
  Found longest_at(std::string_view text, std::size_t at) const;
  std::size_t next_candidate(std::string_view text, std::size_t at) const;

  std::vector<Rule> tokens_;
  // A trie: children by (node, byte); the root is node 0.
  std::unordered_map<std::uint64_t, std::uint32_t> children_;
  std::vector<std::int32_t> rule_of_node_ = {-1};
  std::array<bool, 256> starts_{};
  std::string first_bytes_;
};

}  // namespace espalier::app
