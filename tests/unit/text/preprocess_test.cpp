#include "text/preprocess.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "text/byte_tokenizer.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using text_test::Folder;

constexpr std::int32_t kEnd = ByteTokenizer::kEndOfDocument;

struct Written {
  std::int64_t ids = 0;
  std::vector<std::vector<std::int32_t>> documents;
  bool finished = false;
};

class CollectingWriter final : public TokenWriter, public Written {
 public:
  void open(std::string_view /*prefix*/, std::int64_t vocab) override { ids = vocab; }
  void add_document(std::span<const std::int32_t> tokens) override {
    documents.emplace_back(tokens.begin(), tokens.end());
  }
  void finish() override { finished = true; }
};

class EndlessTokenizer final : public Tokenizer {
 public:
  std::int64_t vocab_size() const override { return 256; }
  std::int32_t end_of_document() const override { return -1; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    ByteTokenizer().encode(text, ids);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return ByteTokenizer().decode(ids); }
  std::string fingerprint() const override { return "endless"; }
};

struct Ran {
  Written writer;
  PreprocessReport report;
  std::string words;
};

Ran run(const PreprocessJob& job, const Tokenizer& tokenizer = ByteTokenizer()) {
  Ran result;
  CollectingWriter writer;
  result.report = preprocess(job, tokenizer, writer, [](std::int64_t) {});
  result.writer = writer;
  result.words = to_string(result.report, job);
  return result;
}

PreprocessJob job_for(const Folder& folder, std::vector<std::string> inputs) {
  PreprocessJob job;
  job.inputs = std::move(inputs);
  job.output = folder.file("out/data");
  return job;
}

// D04: the first text is empty, and end-of-document is on.
TEST(Preprocess, EmptyDocumentsAreLeftOutAndCounted) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"a b\"}\n{\"text\":\"\"}\n");
  const Ran result = run(job_for(folder, {lines}));
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('a', ' ', 'b', kEnd)));
  EXPECT_EQ(result.report.documents, 1);
  EXPECT_EQ(result.report.empty, 2);
  EXPECT_THAT(result.words, HasSubstr("1 document, 4 tokens"));
  EXPECT_THAT(result.words, HasSubstr("2 empty documents skipped"));
  EXPECT_TRUE(result.writer.finished);
}

TEST(Preprocess, InputWithoutTextIsAnError) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n");
  CollectingWriter writer;
  try {
    preprocess(job_for(folder, {lines}), ByteTokenizer(), writer, [](std::int64_t) {});
    FAIL() << "accepted";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr(lines + ": no text in it (2 empty documents skipped)"));
  }
  EXPECT_FALSE(writer.finished);
}

// D09: lengths include the marker.
TEST(Preprocess, TheMarkerBelongsToItsDocument) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cde\"}\n");
  PreprocessJob job = job_for(folder, {lines});
  Ran result = run(job);
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('a', 'b', kEnd), ElementsAre('c', 'd', 'e', kEnd)));
  EXPECT_EQ(result.report.tokens, 7);
  EXPECT_EQ(result.writer.ids, ByteTokenizer::kVocab);
  job.end_of_document = false;
  result = run(job);
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('a', 'b'), ElementsAre('c', 'd', 'e')));
  EXPECT_EQ(result.report.tokens, 5);
}

// T03, T08: bytes are the tokens; nothing is put in front, nothing re-encoded.
TEST(Preprocess, BytesStayAsTheyAre) {
  const Folder folder;
  const Ran result = run(job_for(folder, {folder.write("a.txt", "And héé")}));
  ASSERT_EQ(result.writer.documents.size(), 1u);
  EXPECT_THAT(result.writer.documents[0], ElementsAre('A', 'n', 'd', ' ', 'h', 0xC3, 0xA9, 0xC3, 0xA9, kEnd));
  EXPECT_EQ(ByteTokenizer().decode(result.writer.documents[0]), "And héé");
}

TEST(Preprocess, FilesInOrderWithOneReport) {
  const Folder folder;
  const Ran result = run(job_for(folder, {folder.write("b.txt", "B"), folder.write("a.txt", "A")}));
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('B', kEnd), ElementsAre('A', kEnd)));
  EXPECT_EQ(result.report.read.bytes, 2);
  EXPECT_THAT(result.words, Not(HasSubstr("skipped")));
  EXPECT_THAT(result.words, Not(HasSubstr("replaced")));
}

// D31 in the report's words.
TEST(Preprocess, ReportCountsSkippedLinesByReason) {
  const Folder folder;
  PreprocessJob job = job_for(
      folder,
      {folder.write("a.jsonl", "{\"text\":\"good\"}\n{\"text\n\"context\"\n42\n{\"other\":\"x\"}\n{\"text\":5}\n")});
  job.rules.skip_bad_lines = true;
  EXPECT_THAT(
      run(job).words,
      HasSubstr("5 of 6 lines skipped: 1 not JSON, 2 not an object, 1 without \"text\", 1 \"text\" is no string\n"));
}

TEST(Preprocess, ATokenizerWithoutMarkerIsRefusedUnlessAskedFor) {
  const Folder folder;
  PreprocessJob job = job_for(folder, {folder.write("a.txt", "A")});
  EXPECT_THROW(run(job, EndlessTokenizer()), ConfigError);
  job.end_of_document = false;
  EXPECT_THAT(run(job, EndlessTokenizer()).writer.documents, ElementsAre(ElementsAre('A')));
}

}  // namespace
}  // namespace espalier::app
