#include "text/tokenizers/added_tokens.hpp"

#include <algorithm>
#include <cstring>

#include "text/tokenizers/unicode_classes.hpp"

namespace espalier::app {
namespace {

std::uint64_t child_key(std::uint32_t node, char byte) {
  return (std::uint64_t{node} << 8) | static_cast<unsigned char>(byte);
}

/// Classes of the character that ends before `at`, which is above 0.
std::uint8_t classes_before(std::string_view text, std::size_t at, std::size_t& length) {
  std::size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  const Character character = read_character(text.data() + start, text.data() + at);
  length = character.length == at - start ? character.length : 1;
  return length == at - start ? classes_of(character, unicode_classes()) : std::uint8_t{0};
}

std::uint8_t classes_after(std::string_view text, std::size_t at, std::size_t& length) {
  const Character character = read_character(text.data() + at, text.data() + text.size());
  length = character.length;
  return classes_of(character, unicode_classes());
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string_view form) {
  if (form.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : form) {
    const auto [child, made] =
        children_.try_emplace(child_key(node, byte), static_cast<std::uint32_t>(rule_of_node_.size()));
    if (made) rule_of_node_.push_back(-1);
    node = child->second;
  }
  if (rule_of_node_[node] >= 0) return;
  rule_of_node_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.left_strip, token.right_strip});
  bool& starts = starts_[static_cast<unsigned char>(form[0])];
  if (!starts) first_bytes_ += form[0];
  starts = true;
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t at) const {
  if (first_bytes_.size() == 1) {
    const void* found = at < text.size() ? std::memchr(text.data() + at, first_bytes_[0], text.size() - at) : nullptr;
    return found == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

AddedTokenFinder::Found AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  Found found;
  std::uint32_t node = 0;
  for (std::size_t k = at; k < text.size(); ++k) {
    const auto child = children_.find(child_key(node, text[k]));
    if (child == children_.end()) break;
    node = child->second;
    if (rule_of_node_[node] >= 0) found = {k + 1 - at, static_cast<std::uint32_t>(rule_of_node_[node])};
  }
  return found;
}

void AddedTokenFinder::split(std::string_view text, std::vector<Part>& parts) const {
  parts.clear();
  std::size_t done = 0;  // behind the last part
  for (std::size_t at = empty() ? text.size() : next_candidate(text, 0); at < text.size();) {
    const Found found = longest_at(text, at);
    if (found.length == 0) {
      at = next_candidate(text, at + 1);
      continue;
    }
    const Rule& rule = tokens_[found.rule];
    std::size_t begin = at, end = at + found.length, length = 0;
    at = next_candidate(text, end);
    if (rule.single_word) {
      const bool word_before = begin > 0 && (classes_before(text, begin, length) & kWord) != 0;
      const bool word_after = end < text.size() && (classes_after(text, end, length) & kWord) != 0;
      if (word_before || word_after) continue;
    }
    // A token within the white space that the one before took along counts all the same, and what follows it is text
    // again: tokenizers does so.
    if (rule.left_strip) {
      while (begin > done && (classes_before(text, begin, length) & kSpace) != 0) begin -= length;
      begin = std::min(std::max(begin, done), end);
    }
    if (rule.right_strip) {
      while (end < text.size() && (classes_after(text, end, length) & kSpace) != 0) end += length;
    }
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, rule.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace espalier::app
