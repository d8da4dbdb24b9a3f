// Pairs of .bin and .idx: ours against those of the peers' writers, both ways (fixtures indexed/, corpora/,
// dtype_conflict/, legacy/).
#include "espalier/error.hpp"
#include "index_writer.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

std::vector<std::string> pairs(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_fixture(folder))) {
    if (entry.path().extension() == ".idx") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::int64_t> tokens_of(const IndexedFile& file, std::int64_t i) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(file.size(i)));
  file.read(i, 0, std::span(tokens));
  return tokens;
}

/// The bytes of a sequence in the .bin, as the fixtures hash them.
std::string hash_of(const TokenView& view) {
  return sha256(view.data, static_cast<std::size_t>(view.count * element_bytes(view.type)));
}

void expect_truth(const IndexedFile& file, const nlohmann::json& truth) {
  EXPECT_EQ(type_name(file.type()), truth["dtype"].get<std::string>());
  ASSERT_EQ(file.sequences(), truth["sequence_count"].get<std::int64_t>());
  ASSERT_EQ(file.documents() + 1, truth["document_index_count"].get<std::int64_t>());
  EXPECT_EQ(file.tokens(), truth["total_tokens"].get<std::int64_t>());
  for (std::int64_t k = 0; k <= file.documents(); ++k) {
    EXPECT_EQ(file.document_begin(k), truth["doc_idx"][static_cast<std::size_t>(k)].get<std::int64_t>());
  }
  EXPECT_EQ(file.has_modes(), truth.contains("modes"));
  for (std::int64_t i = 0; i < file.sequences(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (file.has_modes()) {
      EXPECT_EQ(file.mode(i), truth["modes"][at].get<std::int8_t>());
    }
    EXPECT_EQ(file.size(i), truth["sizes"][at].get<std::int32_t>());
    if (truth.contains("pointers")) {
      EXPECT_EQ(file.pointer(i), truth["pointers"][at].get<std::int64_t>());
    }
    const char* key = truth.contains("first_sequences") ? "first_sequences" : "sequences";
    if (!truth.contains(key) || at >= truth[key].size()) {
      continue;
    }
    const auto& sequence = truth[key][at];
    const auto tokens = tokens_of(file, i);
    if (sequence.contains("tokens")) {
      EXPECT_EQ(tokens, as_vector<std::int64_t>(sequence["tokens"]));
    } else {
      EXPECT_EQ(std::vector<std::int64_t>(tokens.begin(), tokens.begin() + 6),
                as_vector<std::int64_t>(sequence["first_6"]));
      EXPECT_EQ(hash_of(file.view(i)), sequence["sha256"].get<std::string>());
    }
  }
}

/// Writes all that a file holds through IndexWriter.
void copy_through_writer(const IndexedFile& file, const std::string& prefix) {
  IndexWriter writer(prefix, file.type());
  for (std::int64_t k = 0; k < file.documents(); ++k) {
    for (std::int64_t i = file.document_begin(k); i < file.document_begin(k + 1); ++i) {
      const auto tokens = tokens_of(file, i);
      writer.add_sequence(std::span<const std::int64_t>(tokens));
      if (file.has_modes()) {
        writer.set_mode(file.mode(i));
      }
    }
    writer.end_document();
  }
  for (std::int64_t i = file.document_begin(file.documents()); i < file.sequences(); ++i) {
    const auto tokens = tokens_of(file, i);
    writer.add_sequence(std::span<const std::int64_t>(tokens));
  }
  writer.finish(true);
}

TEST(IndexedParity, ReadsWhatThePeersWrote) {
  const auto names = pairs("indexed");
  ASSERT_GE(names.size(), 20U);
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    const auto file = IndexedFile::open(data_fixture("indexed/" + name));
    expect_truth(file, read_json(data_fixture("indexed/" + name + ".json")));
    EXPECT_EQ(file.warnings().size(), name == "no_end_document" ? 1U : 0U);
  }
}

TEST(IndexedParity, ReadsTheCorpora) {
  const auto names = pairs("corpora");
  ASSERT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d", "five"}));
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    expect_truth(IndexedFile::open(data_fixture("corpora/" + name)),
                 read_json(data_fixture("corpora/" + name + ".json")));
  }
}

std::string hash_of_file(const std::string& path) {
  const std::string bytes = read_file(path);
  return sha256(bytes.data(), bytes.size());
}

TEST(IndexedParity, WritesTheSameBytes) {
  const TemporaryFolder folder;
  int compared = 0;
  for (const std::string place : {"indexed/", "corpora/"}) {
    for (const auto& name : pairs(place)) {
      SCOPED_TRACE(place + name);
      const auto file = IndexedFile::open(data_fixture(place + name));
      copy_through_writer(file, folder / name);
      const auto truth = read_json(data_fixture(place + name + ".json"));
      EXPECT_EQ(read_file(folder / (name + ".bin")), read_file(data_fixture(place + name + ".bin")));
      EXPECT_EQ(read_file(folder / (name + ".idx")), read_file(data_fixture(place + name + ".idx")));
      EXPECT_EQ(hash_of_file(folder / (name + ".bin")), truth["bin_sha256"].get<std::string>());
      EXPECT_EQ(hash_of_file(folder / (name + ".idx")), truth["idx_sha256"].get<std::string>());
      ++compared;
    }
  }
  EXPECT_GE(compared, 26);
}

TEST(IndexedParity, MergesToTheSameBytes) {
  const TemporaryFolder folder;
  for (const std::string name : {"merge_uint16", "merge_uint16_reversed", "merge_int32", "merge_with_empty",
                                 "merge_multimodal", "merge_no_end_document"}) {
    SCOPED_TRACE(name);
    const auto truth = read_json(data_fixture("indexed/" + name + ".json"));
    const auto type = integer_type_of_name(truth["dtype"].get<std::string>());
    ASSERT_TRUE(type);
    IndexWriter writer(folder / name, *type);
    for (const auto& part : truth["merged_from"]) {
      writer.append(IndexedFile::open(data_fixture("indexed/" + part.get<std::string>())),
                    name == "merge_no_end_document");
    }
    writer.finish();
    for (const std::string extension : {".bin", ".idx"}) {
      EXPECT_EQ(read_file(folder / (name + extension)), read_file(data_fixture("indexed/" + name + extension)));
    }
  }
}

// The peers' merges end as their last part does: with loose sequences that no document holds.
TEST(IndexedParity, AMergeThatEndsInAnOpenDocumentLeavesItOpen) {
  const TemporaryFolder folder;
  IndexWriter writer(folder / "merged", ElementType::uint16);
  writer.append(IndexedFile::open(data_fixture("indexed/second_uint16")), true);
  const auto open = IndexedFile::open(data_fixture("indexed/no_end_document"));
  writer.append(open, true);
  EXPECT_THROW(writer.finish(), ConfigError);
  writer.finish(true);
  const auto merged = IndexedFile::open(folder / "merged");
  const auto second = IndexedFile::open(data_fixture("indexed/second_uint16"));
  EXPECT_EQ(merged.sequences(), second.sequences() + 3);
  EXPECT_EQ(merged.documents(), second.documents() + 1);
  EXPECT_EQ(merged.document_begin(merged.documents()), second.sequences() + 1);
  ASSERT_EQ(merged.warnings().size(), 1U);
  EXPECT_NE(merged.warnings()[0].find("never closed"), std::string::npos);
}

TEST(IndexedParity, MergingAnUnclosedDocumentIsRefused) {
  // Both peers let its sequences run into the next part (indexed/merge_no_end_document), here only on request.
  const TemporaryFolder folder;
  IndexWriter writer(folder / "merged", ElementType::uint16);
  const auto part = IndexedFile::open(data_fixture("indexed/no_end_document"));
  EXPECT_NE(message_of<ConfigError>([&] { writer.append(part); }).find("never closed"), std::string::npos);
}

TEST(IndexedParity, PartsWithAndWithoutModesAreNotMerged) {
  const TemporaryFolder folder;
  IndexWriter writer(folder / "merged", ElementType::uint16);
  writer.append(IndexedFile::open(data_fixture("indexed/multimodal_uint16")));
  const auto plain = IndexedFile::open(data_fixture("indexed/second_uint16"));
  EXPECT_NE(message_of<ConfigError>([&] { writer.append(plain); }).find("lacks modes"), std::string::npos);
  const std::int32_t tokens[] = {1};
  writer.add_sequence(std::span<const std::int32_t>(tokens));
  writer.end_document();
  EXPECT_THROW(writer.finish(), ConfigError);  // a sequence without a mode among others
}

TEST(IndexedParity, TypeCodeSevenIsToldApartByTheSizeOfTheData) {
  const TemporaryFolder folder;
  for (const std::string name : {"bigscience_double", "megatron_core_float32", "megatron_core_float64"}) {
    SCOPED_TRACE(name);
    const auto file = IndexedFile::open(data_fixture("dtype_conflict/" + name));
    auto truth = read_json(data_fixture("dtype_conflict/" + name + ".json"));
    std::vector<double> values(3);
    file.read(0, 0, std::span(values));
    EXPECT_EQ(values, as_vector<double>(truth["sequences"][0]["tokens"]));
    truth.erase("sequences");  // the rest of it: these hold no ids
    expect_truth(file, truth);
    std::vector<std::int32_t> tokens(3);
    EXPECT_THROW(file.read(0, 0, std::span(tokens)), IoError);
    IndexWriter writer(folder / name, file.type());
    writer.add_sequence(std::span<const double>(values));
    writer.end_document();
    writer.finish();
    for (const std::string extension : {".bin", ".idx"}) {
      EXPECT_EQ(read_file(folder / (name + extension)), read_file(data_fixture("dtype_conflict/" + name + extension)));
    }
  }
}

TEST(IndexedParity, TheOlderFormatIsRefusedByName) {
  const auto message = message_of<IoError>([] { IndexedFile::open(data_fixture("legacy/legacy_tntidx")); });
  EXPECT_NE(message.find("TNTIDX"), std::string::npos) << message;
}

}  // namespace
}  // namespace espalier::data_indexed
