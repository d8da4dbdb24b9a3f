#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "espalier/tokenizer.hpp"
#include "text/tokenizers/tokenizer_file.hpp"
#include "text/tokenizers/word_cache.hpp"

namespace espalier::app {

/// Byte-level BPE from a tokenizer.json: the ids are those of Hugging Face's tokenizers with add_special_tokens=False.
/// Added tokens written in a text are recognised. Bytes that are not UTF-8 become the tokens of these bytes.
/// Any number of threads may encode at once; each uses a word cache of its own.
class HuggingFaceTokenizer final : public Tokenizer {
 public:
  /// @param end_of_document  content of the token that ends documents; "": the first of "</s>", "<|endoftext|>",
  ///        "<|end_of_text|>", "<eos>" that is an added token, if any.
  /// @throws ConfigError when the named token is not in the file.
  HuggingFaceTokenizer(TokenizerFile file, const std::string& end_of_document);
  ~HuggingFaceTokenizer() override;

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(file_.bytes_of_id.size()); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override { return decode(ids, false); }
  std::string fingerprint() const override { return file_.fingerprint; }

  /// @param keep_special  also the text of special tokens. Ids outside of the vocabulary give nothing.
  std::string decode(std::span<const std::int32_t> ids, bool keep_special) const;

 private:
  struct Scratch;
  class Lease;

  void encode_raw(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_normalised(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  TokenizerFile file_;
  std::int32_t end_of_document_ = -1;
  std::vector<bool> special_;  // by id
  AddedTokenFinder raw_added_, normalised_added_;
  mutable std::mutex mutex_;  // of idle_
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace espalier::app
