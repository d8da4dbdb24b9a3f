#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "index_file.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {

/// Writes a pair PREFIX.bin, PREFIX.idx, byte for byte as Megatron's own builders do.
///
/// Both files are written under temporary names and appear in finish(); destroyed before that, the writer leaves
/// nothing. Memory: 4 bytes per sequence (5 with modes) and 8 per document.
class IndexWriter {
 public:
  /// @param token_limit  tokens must be below it (the vocabulary size); 0: only the type limits them.
  /// Removes temporary files of killed processes from the folder first (remove_abandoned_files).
  /// @throws ConfigError for an unusable prefix, IoError if the folder cannot be written.
  IndexWriter(const std::string& prefix, ElementType type, std::int64_t token_limit = 0);

  /// Appends one sequence to the open document.
  /// @throws IoError, naming document and token, if a token does not fit the type or the limit: it is never wrapped.
  void add_sequence(std::span<const std::int32_t> tokens);
  void add_sequence(std::span<const std::int64_t> tokens);
  /// For the float types only.
  void add_sequence(std::span<const double> values);
  /// Gives the last sequence its mode (multimodal datasets of Megatron-LM core): for all sequences or for none.
  void set_mode(std::int8_t mode);
  /// Ends the open document, which may hold no sequence.
  void end_document();

  /// Appends a whole dataset of the same type; its bytes are copied, holes stay holes, pointers continue in 64 bits.
  /// @param join_open_document  a last document that was never closed runs on into the next part, as in both peers.
  /// @throws ConfigError if the types differ, only one of both has modes, or its last document was never closed.
  void append(const IndexedFile& part, bool join_open_document = false);

  /// Brings both files to disk and gives them their names, the .bin first. An older pair of that name is replaced; a
  /// process killed in between leaves a .bin without an .idx, which no reader accepts.
  /// @param leave_open  a last document that was never ended stays so, as the peers write it: the document index then
  /// ends below the
  ///                    number of sequences, and Megatron-LM core refuses the file.
  /// @throws ConfigError if a document is still open otherwise.
  void finish(bool leave_open = false);
  /// Gives up: removes the temporary files. Safe to call twice; nothing happens after finish().
  void discard() noexcept;

  ElementType type() const { return type_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(sizes_.size()); }
  std::int64_t documents() const { return static_cast<std::int64_t>(documents_.size()) - 1; }
  std::int64_t tokens() const { return tokens_; }

 private:
  void write_index();
  template <typename From>
  void add(std::span<const From> tokens);
  template <typename From>
  void check_tokens(std::span<const From> tokens) const;

  std::string prefix_;
  ElementType type_;
  std::int64_t smallest_;
  std::int64_t largest_;
  OutputFile data_;
  OutputFile index_;
  std::vector<std::int32_t> sizes_;
  std::vector<std::int64_t> documents_{0};
  std::vector<std::int8_t> modes_;
  std::int64_t moded_ = 0;  // sequences that were given a mode
  std::int64_t tokens_ = 0;
};

}  // namespace espalier::data_indexed
