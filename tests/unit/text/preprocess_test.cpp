#include "text/preprocess.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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

using AllWritten = std::map<std::string, Written>;  // by the last name of the prefix

class CollectingWriter final : public TokenWriter {
 public:
  explicit CollectingWriter(AllWritten& all) : all_(all) {}
  void open(std::string_view prefix, std::int64_t vocab) override {
    written_ = &all_[std::filesystem::path(prefix).filename().string()];
    written_->ids = vocab;
  }
  void add_document(std::span<const std::int32_t> tokens) override {
    written_->documents.emplace_back(tokens.begin(), tokens.end());
  }
  void finish() override { written_->finished = true; }

 private:
  AllWritten& all_;
  Written* written_ = nullptr;
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

/// Whoever writes the corpus goes on while it is read.
class MeddlingTokenizer final : public Tokenizer {
 public:
  explicit MeddlingTokenizer(std::string file) : file_(std::move(file)) {}
  std::int64_t vocab_size() const override { return bytes_.vocab_size(); }
  std::int32_t end_of_document() const override { return bytes_.end_of_document(); }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::filesystem::resize_file(file_, 20);
    bytes_.encode(text, ids);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return bytes_.decode(ids); }
  std::string fingerprint() const override { return bytes_.fingerprint(); }

 private:
  std::string file_;
  ByteTokenizer bytes_;
};

struct Ran {
  AllWritten writers;
  Written writer;  // the only one
  PreprocessReport report;
  std::string words;
};

Ran run(const PreprocessJob& job, const Tokenizer& tokenizer = ByteTokenizer()) {
  Ran result;
  const auto world = make_self_communicator("world");
  const auto make_writer = [&] { return own<TokenWriter>(std::make_unique<CollectingWriter>(result.writers)); };
  result.report = preprocess(job, tokenizer, make_writer, *world);
  if (result.writers.size() == 1) result.writer = result.writers.begin()->second;
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
  EXPECT_EQ(result.report.counts.documents, 1);
  EXPECT_EQ(result.report.counts.empty, 2);
  EXPECT_THAT(result.words, HasSubstr("1 document, 4 tokens"));
  EXPECT_THAT(result.words, HasSubstr("2 empty documents skipped"));
  EXPECT_TRUE(result.writer.finished);
}

TEST(Preprocess, InputWithoutTextIsAnError) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n");
  try {
    run(job_for(folder, {lines}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::io);
    EXPECT_THAT(error.what(), HasSubstr(lines + ": no text in it (2 empty documents skipped)"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("out")));
}

// D09: lengths include the marker.
TEST(Preprocess, TheMarkerBelongsToItsDocument) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cde\"}\n");
  PreprocessJob job = job_for(folder, {lines});
  Ran result = run(job);
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('a', 'b', kEnd), ElementsAre('c', 'd', 'e', kEnd)));
  EXPECT_EQ(result.report.counts.tokens, 7);
  EXPECT_EQ(result.writer.ids, ByteTokenizer::kVocab);
  job.end_of_document = false;
  result = run(job);
  EXPECT_THAT(result.writer.documents, ElementsAre(ElementsAre('a', 'b'), ElementsAre('c', 'd', 'e')));
  EXPECT_EQ(result.report.counts.tokens, 5);
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
  EXPECT_EQ(result.report.counts.read.bytes, 2);
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
  EXPECT_THROW(run(job, EndlessTokenizer()), Error);
  job.end_of_document = false;
  EXPECT_THAT(run(job, EndlessTokenizer()).writer.documents, ElementsAre(ElementsAre('A')));
}

TEST(Preprocess, ThreadsAndPiecesChangeNothing) {
  const Folder folder;
  std::string text;
  for (int line = 0; line < 500; ++line)
    text += "{\"text\":\"" + std::string(static_cast<std::size_t>(line % 50), 'x') + std::to_string(line) + "\"}\n";
  PreprocessJob job = job_for(folder, {folder.write("a.jsonl", text), folder.write("b.jsonl", text)});
  const Ran whole = run(job);
  EXPECT_EQ(whole.writer.documents.size(), 1000u);
  EXPECT_EQ(whole.report.pieces, 2);
  job.threads = 3;
  job.piece_bytes = 700;
  const Ran cut = run(job);
  EXPECT_GT(cut.report.pieces, 50);
  EXPECT_EQ(cut.writer.documents, whole.writer.documents);
  EXPECT_EQ(cut.report.counts.tokens, whole.report.counts.tokens);
  EXPECT_EQ(cut.report.counts.read.bytes, whole.report.counts.read.bytes);
}

// Of several bad lines the first one is told, whoever meets which one first.
TEST(Preprocess, TheFirstBadLineIsTold) {
  const Folder folder;
  std::string text;
  for (int line = 1; line <= 400; ++line) text += line >= 211 && line % 3 == 0 ? "{\n" : "{\"text\":\"abcdef\"}\n";
  PreprocessJob job = job_for(folder, {folder.write("a.jsonl", text)});
  job.threads = 4;
  job.piece_bytes = 30;
  for (int round = 0; round < 10; ++round) {
    try {
      run(job);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a.jsonl:213: not JSON"));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.file("out")));
  }
}

TEST(Preprocess, OneOutputALanguage) {
  const Folder folder;
  PreprocessJob job =
      job_for(folder, {folder.write("all.jsonl",
                                    "{\"text\":\"un\",\"lang\":\"fr\"}\n{\"text\":\"one\",\"lang\":\"en\"}\n"
                                    "{\"text\":\"deux\",\"lang\":\"fr\"}\n")});
  job.output = folder.file("out/{language}_x");
  job.language = LanguageFrom::key;
  job.rules.language_key = "lang";
  const Ran by_key = run(job);
  ASSERT_EQ(by_key.writers.size(), 2u);
  EXPECT_THAT(by_key.writers.at("fr_x").documents,
              ElementsAre(ElementsAre('u', 'n', kEnd), ElementsAre('d', 'e', 'u', 'x', kEnd)));
  EXPECT_THAT(by_key.writers.at("en_x").documents, ElementsAre(ElementsAre('o', 'n', 'e', kEnd)));
  EXPECT_THAT(by_key.words, HasSubstr("  fr: 2 documents, 8 tokens\n"));

  job = job_for(folder,
                {folder.write("fr-1.txt", "un"), folder.write("en.txt", "one"), folder.write("fr-2.txt", "deux")});
  job.output = folder.file("out/{language}_x");
  job.language = LanguageFrom::file_name;
  const Ran by_name = run(job);
  EXPECT_EQ(by_name.writers.at("fr_x").documents, by_key.writers.at("fr_x").documents);
  EXPECT_EQ(by_name.writers.at("en_x").documents, by_key.writers.at("en_x").documents);
}

TEST(Preprocess, LanguagesOfFileNames) {
  EXPECT_EQ(language_of_file("a.b/fr.jsonl.gz"), "fr");
  EXPECT_EQ(language_of_file("zh-hans.txt"), "zh-hans");
  EXPECT_EQ(language_of_file("fr-00001-of-00012.jsonl"), "fr");
  EXPECT_EQ(language_of_file("nigercongo-sw_017.jsonl"), "nigercongo-sw");
  EXPECT_THROW(language_of_file("dir/.jsonl"), ConfigError);
  EXPECT_THROW(language_of_file("a b.jsonl"), ConfigError);
}

// Parts of another job are not mixed in, and not thrown away unasked.
TEST(Preprocess, PartsOfAnotherJobAreRefused) {
  const Folder folder;
  PreprocessJob job = job_for(folder, {folder.write("a.txt", "A")});
  std::filesystem::create_directories(folder.file("out/data.parts"));
  std::ofstream(folder.file("out/data.parts/job.txt")) << "preprocess 1\ntokenizer bytes of 300 ids\n";
  try {
    run(job);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("there: \"tokenizer bytes of 300 ids\", now: \"tokenizer bytes of 258 ids\""));
    EXPECT_THAT(error.what(), HasSubstr("--restart"));
  }
  job.restart = true;
  EXPECT_THAT(run(job).writer.documents, ElementsAre(ElementsAre('A', kEnd)));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out/data.parts")));
}

TEST(Preprocess, AnInputThatChangesWhileItIsReadIsRefused) {
  const Folder folder;
  const std::string input = folder.write("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
  PreprocessJob job;
  job.inputs = {input};
  job.output = folder.file("a");
  try {
    run(job, MeddlingTokenizer(input));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::io);
    EXPECT_THAT(error.what(), HasSubstr(input + ": changed while it was read; nothing was written"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.parts")));
}

}  // namespace
}  // namespace espalier::app
