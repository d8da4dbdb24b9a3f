#include "text/tokenizers/sentencepiece_tokenizer.hpp"

#include <sentencepiece_processor.h>

#include "espalier/error.hpp"
#include "text/tokenizers/content.hpp"

namespace espalier::app {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space in pieces

std::string full_name(const std::filesystem::path& file) {
  return std::filesystem::absolute(file).lexically_normal().string();
}

}  // namespace

struct SentencePieceTokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& file, const std::string& end_of_document) {
  const std::string content = read_content(file);
  auto model = std::make_unique<Model>();
  const auto status = model->processor.LoadFromSerializedProto(content);
  if (content.empty() || !status.ok()) {
    throw IoError(full_name(file) + ": is no SentencePiece model" +
                  (status.ok() ? "" : std::string(": ") + status.message()));
  }
  fingerprint_ = "sentencepiece:" + content_hash(content);
  if (end_of_document.empty()) {
    end_of_document_ = model->processor.eos_id();
  } else {
    end_of_document_ = model->processor.PieceToId(end_of_document);
    if (model->processor.IdToPiece(end_of_document_) != end_of_document) {
      throw ConfigError("end_of_document: the tokenizer has no piece \"" + end_of_document + "\"");
    }
  }
  const std::vector<int> probe = model->processor.EncodeAsIds("a");
  adds_space_ = !probe.empty() && model->processor.IdToPiece(probe[0]).starts_with(kSpaceMark);
  model_ = std::move(model);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::int64_t SentencePieceTokenizer::vocab_size() const { return model_->processor.GetPieceSize(); }

void SentencePieceTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::vector<int> found;
  const auto status = model_->processor.Encode(text, &found);
  if (!status.ok()) throw IoError(std::string("SentencePiece cannot encode a text: ") + status.message());
  ids.insert(ids.end(), found.begin(), found.end());
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  const auto& processor = model_->processor;
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= processor.GetPieceSize() || processor.IsControl(id) || processor.IsUnused(id)) continue;
    std::string_view piece = processor.IdToPiece(id);
    if (processor.IsByte(id)) {  // "<0x0A>"
      text += static_cast<char>(std::stoi(std::string(piece.substr(3, 2)), nullptr, 16));
      continue;
    }
    if (processor.IsUnknown(id)) {
      text += "\xEF\xBF\xBD";  // U+FFFD: what it stood for is lost
      continue;
    }
    while (!piece.empty()) {
      const std::size_t mark = piece.find(kSpaceMark);
      text += piece.substr(0, mark);
      if (mark == std::string_view::npos) break;
      text += ' ';
      piece.remove_prefix(mark + kSpaceMark.size());
    }
  }
  if (adds_space_ && ids.size() > 1 && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace espalier::app
