#pragma once
#include <espalier/dataset.hpp>
#include <memory>

#include "index_writer.hpp"

namespace espalier::data_indexed {

/// Writes a .bin/.idx pair, one sequence a document: uint16 below a vocabulary of 65,500, else int32, as Megatron's
/// tools.
class IndexedTokenWriter : public TokenWriter {
 public:
  void open(std::string_view prefix, std::int64_t vocab) override;
  void add_document(std::span<const std::int32_t> tokens) override;
  void finish() override;

 private:
  IndexWriter& writer();

  std::unique_ptr<IndexWriter> writer_;
};

}  // namespace espalier::data_indexed
