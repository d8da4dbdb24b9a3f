#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

using app::text_test::Folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Outcome preprocess(const std::string& input, const std::string& output, const std::string& more = "") {
  return run(std::string(TRAINER_EXE) + " preprocess --input " + quoted(input) + " --output " + quoted(output) + " " +
             more);
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  return names;
}

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
std::vector<T> numbers(const std::string& bytes, std::size_t at, std::size_t count) {
  std::vector<T> values(count);
  if (at + count * sizeof(T) > bytes.size()) return {};
  std::memcpy(values.data(), bytes.data() + at, count * sizeof(T));
  return values;
}

// D09: in the files, sizes and pointers count the end-of-document id, and it ends each document.
TEST(PreprocessCommand, SizesAndPointersIncludeTheMarker) {
  const Folder folder;
  const auto input = folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cde\"}\n");
  const Outcome outcome = preprocess(input, folder.file("a"));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("2 documents, 7 tokens"));
  const std::string bin = bytes_of(folder.file("a.bin")), idx = bytes_of(folder.file("a.idx"));
  EXPECT_EQ(bin.size(), 14u);
  EXPECT_THAT(numbers<std::uint16_t>(bin, 0, 7), ElementsAre('a', 'b', 256, 'c', 'd', 'e', 256));
  // MMIDIDX: magic 9, version 8, type 1, two counts of 8 bytes; then sizes (i32) and pointers (i64).
  EXPECT_EQ(idx.substr(0, 9), std::string("MMIDIDX\0\0", 9));
  EXPECT_THAT(numbers<std::int32_t>(idx, 34, 2), ElementsAre(3, 4));
  EXPECT_THAT(numbers<std::int64_t>(idx, 42, 2), ElementsAre(0, 6));
}

// D04: empty texts around a good one; only empty ones.
TEST(PreprocessCommand, EmptyDocuments) {
  const Folder folder;
  const auto some = folder.write("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"a b\"}\n{\"text\":\"\"}\n");
  const Outcome good = preprocess(some, folder.file("a"));
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.text, HasSubstr("1 document, 4 tokens"));
  EXPECT_THAT(good.text, HasSubstr("2 empty documents skipped"));
  EXPECT_THAT(numbers<std::uint16_t>(bytes_of(folder.file("a.bin")), 0, 4), ElementsAre('a', ' ', 'b', 256));

  const Folder other;
  const auto none = folder.write("b.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n");
  const Outcome bad = preprocess(none, other.file("b"));
  EXPECT_EQ(bad.code, 4);
  EXPECT_THAT(bad.text, HasSubstr(none + ": no text in it (2 empty documents skipped)"));
  EXPECT_THAT(names_in(other), IsEmpty());
}

// D31: one bad line.
TEST(PreprocessCommand, BadLinesStopOrAreSkipped) {
  const Folder folder, other;
  const auto input = folder.write(
      "a.jsonl", "{\"text\":\"good\"}\n{\"text\": \"bro\n\"context\"\n42\n{\"other\":\"x\"}\n{\"text\":5}\n");
  const Outcome stopped = preprocess(input, other.file("a"));
  EXPECT_EQ(stopped.code, 4);
  EXPECT_THAT(stopped.text, HasSubstr(input + ":2: not JSON"));
  EXPECT_THAT(names_in(other), IsEmpty());
  const Outcome skipped = preprocess(input, other.file("a"), "--on-bad-line skip");
  EXPECT_EQ(skipped.code, 0) << skipped.text;
  EXPECT_THAT(
      skipped.text,
      HasSubstr("5 of 6 lines skipped: 1 not JSON, 2 not an object, 1 without \"text\", 1 \"text\" is no string"));
  EXPECT_THAT(names_in(other), UnorderedElementsAre("a.bin", "a.idx"));
}

// An older output survives a run that fails.
TEST(PreprocessCommand, AFailureLeavesTheOlderOutput) {
  const Folder folder;
  ASSERT_EQ(preprocess(folder.write("a.txt", "old"), folder.file("a")).code, 0);
  EXPECT_EQ(preprocess(folder.write("b.jsonl", "{\"text\":\"x\"}\n{"), folder.file("a")).code, 4);
  EXPECT_EQ(bytes_of(folder.file("a.bin")).size(), 8u);
}

// T03: FF FE is refused with its line, or replaced and counted.
TEST(PreprocessCommand, BytesThatAreNoText) {
  const Folder folder;
  const auto input = folder.write("a.txt", "line\n\xFF\xFE\n");
  const Outcome refused = preprocess(input, folder.file("a"));
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.text, HasSubstr(input + ":2: byte FF at position 1 is not UTF-8"));
  const Outcome replaced = preprocess(input, folder.file("a"), "--bad-characters replace");
  EXPECT_EQ(replaced.code, 0);
  EXPECT_THAT(replaced.text, HasSubstr("2 invalid characters replaced by U+FFFD"));
  EXPECT_THAT(numbers<std::uint16_t>(bytes_of(folder.file("a.bin")), 10, 6),
              ElementsAre(0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD));
}

TEST(PreprocessCommand, WrongArgumentsAndPlaces) {
  const Folder folder;
  const auto input = folder.write("a.txt", "x");
  EXPECT_EQ(preprocess(input, folder.file("a"), "--format csv").code, 2);
  EXPECT_EQ(preprocess(input, folder.file("a"), "--on-bad-line ignore").code, 2);
  // A prefix that is none would become a hidden file, or nothing.
  for (const std::string& output : {std::string(), folder.file("")}) {
    const Outcome none = preprocess(input, output);
    EXPECT_EQ(none.code, 2);
    EXPECT_THAT(none.text, HasSubstr("--output: "));
  }
  // What no input would use.
  EXPECT_THAT(preprocess(input, folder.file("a"), "--key body").text, HasSubstr("--key: is for JSONL"));
  EXPECT_EQ(preprocess(input, folder.file("a"), "--split-paragraphs --format jsonl").code, 2);
  const Outcome unknown = preprocess(input, folder.file("a"), "--plugin data_indexd");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.text, HasSubstr("data_indexed"));
  const Outcome missing = preprocess(folder.file("none.txt"), folder.file("a"));
  EXPECT_EQ(missing.code, 4);
  EXPECT_THAT(missing.text, HasSubstr(folder.file("none.txt")));
  const Outcome many = run("PMI_SIZE=2 " + std::string(TRAINER_EXE) + " preprocess --input " + quoted(input) +
                           " --output " + quoted(folder.file("a")));
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.text, HasSubstr("one process"));
  EXPECT_THAT(names_in(folder), UnorderedElementsAre("a.txt"));
  // The folder of the output is made.
  EXPECT_EQ(preprocess(input, folder.file("new/folder/a")).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("new/folder/a.idx")));
}

}  // namespace
}  // namespace espalier::cli_test
