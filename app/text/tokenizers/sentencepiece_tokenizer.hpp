#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "espalier/tokenizer.hpp"

namespace espalier::app {

/// A SentencePiece model through its library. What its normaliser changes (runs of spaces, compatibility characters)
/// does not come back from the ids. Thread-safe.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// @param end_of_document  the piece that ends documents; "": the model's end of sentence, if it has one.
  /// @throws IoError when the file is no model; ConfigError when the named piece is not in it.
  SentencePieceTokenizer(const std::filesystem::path& file, const std::string& end_of_document);
  ~SentencePieceTokenizer() override;

  std::int64_t vocab_size() const override;
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  /// The space that the model puts before a text is taken off, except from a single id: in a stream it parts words.
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  struct Model;

  std::unique_ptr<const Model> model_;
  std::string fingerprint_;
  std::int32_t end_of_document_ = -1;
  bool adds_space_ = false;  ///< in front of a text
};

}  // namespace espalier::app
