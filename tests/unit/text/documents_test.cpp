#include "text/documents.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using text_test::Folder;

struct Read {
  std::vector<std::string> documents;
  ReadCounts counts;
};

Read read(const std::string& file, const DocumentRules& rules = {}) {
  Read result;
  std::int64_t seen = 0;
  read_documents(
      file, rules, result.counts, [&](std::string_view text, std::string_view) { result.documents.emplace_back(text); },
      [&](std::int64_t bytes) { seen += bytes; });
  EXPECT_EQ(seen, result.counts.bytes);
  return result;
}

std::string refusal(const std::string& file, const DocumentRules& rules = {}) {
  try {
    read(file, rules);
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Documents, PlainTextIsOneDocumentAFile) {
  const Folder folder;
  const std::string text = "one\n\ntwo\r\nthree\n";
  EXPECT_THAT(read(folder.write("a.txt", text)).documents, ElementsAre(text));
  EXPECT_THAT(read(folder.write("bom.txt", "\xEF\xBB\xBFx")).documents, ElementsAre("x"));
  EXPECT_THAT(read(folder.write("empty.txt", "")).documents, ElementsAre(""));
}

TEST(Documents, ParagraphsEndAtBlankLines) {
  const Folder folder;
  DocumentRules rules;
  rules.split_paragraphs = true;
  const auto file = folder.write("a.txt", "\n\none\ntwo\n\n \t\nthree\n\nfour");
  EXPECT_THAT(read(file, rules).documents, ElementsAre("one\ntwo", "three", "four"));
}

TEST(Documents, JsonLinesByNameOrByRequest) {
  const Folder folder;
  const std::string lines = "{\"text\":\"one\"}\r\n\n{\"text\":\"two\"}";
  const Read byName = read(folder.write("a.jsonl", lines));
  EXPECT_THAT(byName.documents, ElementsAre("one", "two"));
  EXPECT_EQ(byName.counts.lines, 2);
  EXPECT_EQ(byName.counts.blank_lines, 1);
  DocumentRules rules;
  rules.format = TextFormat::jsonl;
  EXPECT_THAT(read(folder.write("a.txt", lines), rules).documents, ElementsAre("one", "two"));
}

TEST(Documents, LinesOfAnyLengthAcrossBlocks) {
  const Folder folder;
  std::string file;
  std::vector<std::size_t> sizes = {0, 1, 300000, 1 << 20, (1 << 20) - 11, 5 << 20, 3};
  for (const std::size_t size : sizes)
    file += "{\"text\":\"" + std::string(size, 'a' + static_cast<char>(size % 26)) + "\"}\n";
  const Read result = read(folder.write("a.jsonl", file));
  ASSERT_EQ(result.documents.size(), sizes.size());
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    EXPECT_EQ(result.documents[k], std::string(sizes[k], 'a' + static_cast<char>(sizes[k] % 26))) << k;
  }
  EXPECT_EQ(result.counts.bytes, static_cast<std::int64_t>(file.size()));
}

// O09, T03: the message has the full path, the line and what to do.
TEST(Documents, FaultsNameFileAndLine) {
  const Folder folder;
  const auto text = folder.write("a.txt",
                                 "first\nse\xFF\xFE"
                                 "cond\n");
  EXPECT_THAT(refusal(text), StartsWith(text + ":2: byte FF at position 3 is not UTF-8"));
  const auto lines = folder.write("a.jsonl", "{\"text\":\"x\"}\n\n{\"text\":\"\xFF\"}\n");
  EXPECT_THAT(refusal(lines), StartsWith(lines + ":3: byte FF at position 10 is not UTF-8"));
  const auto surrogate = folder.write("b.jsonl", "{\"text\":\"\\ud800\"}\n");
  EXPECT_THAT(refusal(surrogate), StartsWith(surrogate + ":1: half of a surrogate pair at position 10"));
  EXPECT_THAT(refusal(folder.file("none.txt")), StartsWith(folder.file("none.txt") + ": cannot be read"));
  DocumentRules rules;
  rules.split_paragraphs = true;
  EXPECT_THAT(refusal(folder.write("c.txt",
                                   "one\n\ntwo\nth\xC3"
                                   "ree\n"),
                      rules),
              HasSubstr("c.txt:4: byte C3 at position 3"));
}

TEST(Documents, BadCharactersAreReplacedAndCounted) {
  const Folder folder;
  DocumentRules rules;
  rules.repair_characters = true;
  const std::string r = "\xEF\xBF\xBD";
  const Read text = read(folder.write("a.txt",
                                      "a\xFF\xFE"
                                      "b"),
                         rules);
  EXPECT_THAT(text.documents, ElementsAre("a" + r + r + "b"));
  EXPECT_EQ(text.counts.replaced, 2);
  const Read lines = read(folder.write("a.jsonl", "{\"text\":\"\xFF\\udc00\"}"), rules);
  EXPECT_THAT(lines.documents, ElementsAre(r + r));
  EXPECT_EQ(lines.counts.replaced, 2);
}

TEST(Documents, SkippedLinesAreCountedByFault) {
  const Folder folder;
  DocumentRules rules;
  rules.skip_bad_lines = true;
  const auto file = folder.write(
      "a.jsonl", "{\"text\":\"a\"}\n{\"te\n\"context\"\n42\n{\"x\":1}\n{\"text\":5}\n{\"text\":\"\xFF\"}\n");
  const Read result = read(file, rules);
  EXPECT_THAT(result.documents, ElementsAre("a"));
  EXPECT_EQ(result.counts.lines, 7);
  EXPECT_THAT(result.counts.skipped, ElementsAre(0, 1, 2, 1, 1, 1, 0, 0));
  EXPECT_EQ(result.counts.all_skipped(), 6);
}

// A line that does not end must not fill the memory: it is refused with its number, or passed over.
TEST(Documents, LinesThatAreTooLong) {
  const Folder folder;
  DocumentRules rules;
  rules.longest = 1000;
  rules.offers_options = true;
  const std::string good = "{\"text\":\"" + std::string(1000 - 11, 'x') + "\"}\n";
  const auto lines = folder.write("a.jsonl", good + std::string(3 << 20, ' ') + "x\n" + good + std::string(2000, 'y'));
  EXPECT_THAT(refusal(lines, rules),
              StartsWith(lines + ":2: a line of more than 1000 bytes; --max-document-bytes allows more"));
  const auto whole = folder.write("a.txt", std::string(1001, 'x'));
  EXPECT_THAT(refusal(whole, rules), StartsWith(whole + ":1: a document of more than 1000 bytes"));
  rules.skip_bad_lines = true;
  const Read result = read(lines, rules);
  EXPECT_THAT(result.documents, ElementsAre(std::string(989, 'x'), std::string(989, 'x')));
  EXPECT_EQ(result.counts.skipped[static_cast<std::size_t>(LineFault::too_long)], 2);
  EXPECT_EQ(result.counts.lines, 4);

  rules.split_paragraphs = true;
  rules.skip_bad_lines = false;
  const auto paragraphs =
      folder.write("b.txt", "one\n\n" + std::string(600, 'x') + "\n" + std::string(600, 'y') + "\n\ntwo\n");
  EXPECT_THAT(refusal(paragraphs, rules), StartsWith(paragraphs + ":3: a paragraph of more than 1000 bytes"));
  rules.skip_bad_lines = true;
  EXPECT_THAT(read(paragraphs, rules).documents, ElementsAre("one", "two"));
}

TEST(Documents, LanguagesUnderAKey) {
  const Folder folder;
  DocumentRules rules;
  rules.language_key = "lang";
  std::vector<std::string> seen;
  ReadCounts counts;
  const auto file =
      folder.write("a.jsonl",
                   "{\"lang\":\"fr\",\"text\":\"un\"}\n{\"text\":\"two\",\"lang\":\"zh-hans\"}\n"
                   "{\"text\":\"x\",\"lang\":\"../fr\"}\n{\"text\":\"x\",\"lang\":5}\n{\"text\":\"x\"}\n");
  EXPECT_THAT(refusal(file, rules), HasSubstr(":3: \"lang\" names no language"));
  rules.skip_bad_lines = true;
  const DocumentSink sink = [&](std::string_view text, std::string_view language) {
    seen.push_back(std::string(language) + ":" + std::string(text));
  };
  read_documents(file, rules, counts, sink, [](std::int64_t) {});
  EXPECT_THAT(seen, ElementsAre("fr:un", "zh-hans:two"));
  EXPECT_EQ(counts.skipped[static_cast<std::size_t>(LineFault::no_language)], 3);
}

TEST(Documents, InputsAreCheckedBeforeAnyIsRead) {
  const Folder folder;
  const auto a = folder.write("a.txt", "12345");
  const auto b = folder.write("b.txt", "678");
  EXPECT_EQ(check_inputs({a, b}), 8);
  EXPECT_THROW(check_inputs({a, folder.file("typo.txt")}), IoError);
  EXPECT_THROW(check_inputs({a, folder.path().string()}), IoError);
}

}  // namespace
}  // namespace espalier::app
