#include "text/tokenizers/huggingface_tokenizer.hpp"

#include <algorithm>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

constexpr std::string_view kUsualEnds[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>"};

std::int32_t find_end_of_document(const std::vector<AddedToken>& added, const std::string& asked,
                                  const std::vector<std::string>& bytes_of_id) {
  const auto find = [&](std::string_view content) {
    const auto token = std::ranges::find(added, content, &AddedToken::content);
    return token == added.end() ? -1 : token->id;
  };
  if (asked.empty()) {
    for (const std::string_view usual : kUsualEnds) {
      if (const std::int32_t id = find(usual); id >= 0) return id;
    }
    return -1;
  }
  if (const std::int32_t id = find(asked); id >= 0) return id;
  const auto plain = std::ranges::find(bytes_of_id, asked);
  if (plain == bytes_of_id.end()) throw ConfigError("end_of_document: the tokenizer has no token \"" + asked + "\"");
  return static_cast<std::int32_t>(plain - bytes_of_id.begin());
}

}  // namespace

struct HuggingFaceTokenizer::Scratch {
  WordCache words;
  MergeScratch merging;
  SplitScratch splitting;
  std::vector<AddedTokenFinder::Part> raw_parts, parts;
};

/// A scratch for the time of one call: an idle one, or a new one when all are in use.
class HuggingFaceTokenizer::Lease {
 public:
  explicit Lease(const HuggingFaceTokenizer& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner_.mutex_);
      if (!owner_.idle_.empty()) {
        scratch_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Scratch& operator*() const { return *scratch_; }

 private:
  const HuggingFaceTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

HuggingFaceTokenizer::HuggingFaceTokenizer(TokenizerFile file, const std::string& end_of_document)
    : file_(std::move(file)),
      end_of_document_(find_end_of_document(file_.added, end_of_document, file_.bytes_of_id)),
      special_(file_.bytes_of_id.size()) {
  // Special tokens first: of two with the same form the first is found.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : file_.added) {
      if (token.special != special) continue;
      special_[static_cast<std::size_t>(token.id)] = special;
      if (token.normalized) {
        normalised_added_.add(token, file_.normalizer.apply(token.content));
      } else {
        raw_added_.add(token, token.content);
      }
    }
  }
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

void HuggingFaceTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const Lease lease(*this);
  encode_raw(text, *lease, ids);
}

void HuggingFaceTokenizer::encode_raw(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (raw_added_.empty()) return encode_normalised(text, scratch, ids);
  raw_added_.split(text, scratch.raw_parts);
  for (const AddedTokenFinder::Part& part : scratch.raw_parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_normalised(text.substr(part.begin, part.end - part.begin), scratch, ids);
    }
  }
}

void HuggingFaceTokenizer::encode_normalised(std::string_view text, Scratch& scratch,
                                             std::vector<std::int32_t>& ids) const {
  std::string normalised;
  if (!file_.normalizer.empty()) {
    normalised = file_.normalizer.apply(text);
    text = normalised;
  }
  if (normalised_added_.empty()) return encode_plain(text, scratch, ids);
  normalised_added_.split(text, scratch.parts);
  for (const AddedTokenFinder::Part& part : scratch.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_plain(text.substr(part.begin, part.end - part.begin), scratch, ids);
    }
  }
}

void HuggingFaceTokenizer::encode_plain(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  file_.pretokenizer.split(text, scratch.splitting, [&](std::string_view piece) { encode_piece(piece, scratch, ids); });
}

void HuggingFaceTokenizer::encode_piece(std::string_view piece, Scratch& scratch,
                                        std::vector<std::int32_t>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(file_.encoder->id_of_byte(static_cast<unsigned char>(piece[0])));
    return;
  }
  const bool caches = piece.size() <= WordCache::kLongest;
  WordCache::Key key;
  if (caches) {
    key = WordCache::key_of(piece);
    if (scratch.words.find(piece, key, ids)) return;
  }
  const std::size_t start = ids.size();
  if (const auto whole = file_.whole.find(piece); whole != file_.whole.end()) {
    ids.push_back(whole->second);
  } else {
    file_.encoder->encode(piece, scratch.merging, ids);
  }
  if (caches) scratch.words.insert(piece, key, std::span(ids).subspan(start));
}

std::string HuggingFaceTokenizer::decode(std::span<const std::int32_t> ids, bool keep_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= special_.size() || (special_[at] && !keep_special)) continue;
    text += file_.bytes_of_id[at];
  }
  return text;
}

}  // namespace espalier::app
