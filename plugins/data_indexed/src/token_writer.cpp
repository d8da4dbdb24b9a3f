#include "token_writer.hpp"

#include "fail.hpp"

namespace espalier::data_indexed {

void IndexedTokenWriter::open(std::string_view prefix, std::int64_t vocab) {
  if (vocab < 1) {
    fail_config(prefix, "a vocabulary of " + std::to_string(vocab) + " has no ids to write");
  }
  writer_ = std::make_unique<IndexWriter>(std::string(prefix), type_for_vocabulary(vocab), vocab);
}

void IndexedTokenWriter::add_document(std::span<const std::int32_t> tokens) {
  writer().add_sequence(tokens);
  writer().end_document();
}

void IndexedTokenWriter::finish() {
  writer().finish();
  writer_.reset();
}

IndexWriter& IndexedTokenWriter::writer() {
  ESPALIER_ASSERT(writer_ != nullptr);
  return *writer_;
}

}  // namespace espalier::data_indexed
