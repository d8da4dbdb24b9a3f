// trainer tokenizer train|encode|decode, and preprocess with a tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>

#include "cli/process.hpp"
#include "unit/text/files.hpp"
#include "unit/text/tokenizers/files.hpp"

namespace espalier::app::tokenizers_test {
namespace {

using cli_test::Outcome;
using cli_test::quoted;
using ::testing::HasSubstr;
using text_test::Folder;

const std::string kFixture = ESPALIER_FIXTURES_DIR "/model/tokenizer/bloom_tokenizer.json";

Outcome tokenizer(const std::string& arguments, const std::string& input = "") {
  return cli_test::run("printf %s " + quoted(input) + " | " + TRAINER_EXE + " tokenizer " + arguments);
}

Outcome encode_lines(const std::string& input) { return tokenizer("encode --tokenizer " + quoted(kFixture), input); }
Outcome decode_lines(const std::string& input, const std::string& more = "") {
  return tokenizer("decode --tokenizer " + quoted(kFixture) + more, input);
}

TEST(TokenizerCommand, EncodesAndDecodesLines) {
  const Outcome ids = encode_lines("\"! <s>\"\n\"\"\n\"w\\u00f6rld\"\n");
  EXPECT_EQ(ids.code, 0);
  EXPECT_TRUE(ids.text.starts_with("[4,224,1]\n[]\n[")) << ids.text;
  EXPECT_EQ(decode_lines(ids.text).text, "\"! \"\n\"\"\n\"wörld\"\n");
  EXPECT_EQ(decode_lines(ids.text, " --keep-special").text, "\"! <s>\"\n\"\"\n\"wörld\"\n");
  EXPECT_EQ(decode_lines("[175]").text, "\"\uFFFD\"\n");  // a byte that is no character
  EXPECT_EQ(encode_lines("").text, "");
  EXPECT_EQ(tokenizer("encode --tokenizer bytes", "\"é\"").text, "[195,169]\n");
}

TEST(TokenizerCommand, BadLinesAreNamed) {
  const auto expect = [](const Outcome& outcome, const std::string& text) {
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.text, HasSubstr(text));
  };
  expect(encode_lines("\"a\"\nb\n"), "standard input:2: not JSON");
  expect(encode_lines("\"a\"\n\"\\ud800\"\n"), "standard input:2: not JSON");
  expect(encode_lines("\"\xFF\"\n"), "standard input:1: not JSON");
  expect(encode_lines("\"a\"\n\n"), "standard input:2: not JSON");
  expect(encode_lines("[\"a\"]"), "standard input:1: expected a string, found [\"a\"]");
  expect(decode_lines("[1]\n\"a\"\n"), "standard input:2: expected a list of ids, found \"a\"");
  expect(decode_lines("[1000]"), "standard input:1: expected ids from 0 to 999, found 1000");
  expect(decode_lines("[1,-1]"), "found -1");
  expect(decode_lines("[1.5]"), "found 1.5");
  expect(decode_lines("[99999999999999999999]"), "expected ids from 0 to 999");
}

TEST(TokenizerCommand, FilesThatAreNone) {
  const Folder folder;
  const Outcome text = tokenizer("encode --tokenizer " + quoted(folder.write("a.txt", "x")));
  EXPECT_EQ(text.code, 2);
  EXPECT_THAT(text.text, HasSubstr("ends in .json"));
  EXPECT_THAT(tokenizer("encode --tokenizer " + quoted(folder.write("a.model", "x"))).text,
              HasSubstr("is no SentencePiece model"));
  EXPECT_EQ(tokenizer("encode --tokenizer " + quoted(folder.file("none.json"))).code, 4);
  EXPECT_EQ(tokenizer("decode --keep-special --tokenizer bytes").code, 2);
}

TEST(TokenizerCommand, TrainsAVocabularyThatPreprocessUses) {
  const Folder folder;
  std::string lines;
  for (int k = 0; k < 50; ++k) lines += "{\"text\":\"the other mother and the brother " + std::to_string(k) + "\"}\n";
  const std::string input = folder.write("a.jsonl", lines), file = folder.file("new/tokenizer.json");
  const Outcome learned = tokenizer("train --input " + quoted(input) +
                                    " --vocab-size 290 --special '<end>' --special '</s>' --output " + quoted(file));
  ASSERT_EQ(learned.code, 0) << learned.text;
  EXPECT_THAT(learned.text, HasSubstr("learned    276 ids: 2 special tokens, 256 bytes, 18 merges"));
  EXPECT_THAT(learned.text, HasSubstr("fewer than the 290 asked for"));
  const Outcome ids = tokenizer("encode --tokenizer " + quoted(file), "\" mother</s>\"");
  EXPECT_EQ(std::count(ids.text.begin(), ids.text.end(), ','), 1) << ids.text;  // a whole word, and the end
  const Outcome made = cli_test::run(std::string(TRAINER_EXE) + " preprocess --tokenizer " + quoted(file) +
                                     " --input " + quoted(input) + " --output " + quoted(folder.file("d")));
  ASSERT_EQ(made.code, 0) << made.text;
  std::ifstream in(folder.file("d.bin"), std::ios::binary);
  const std::string bin{std::istreambuf_iterator<char>(in), {}};
  std::uint16_t last = 0;
  ASSERT_GE(bin.size(), 2u);
  std::memcpy(&last, bin.data() + bin.size() - 2, 2);
  EXPECT_EQ(last, 1);  // </s>
}

TEST(TokenizerCommand, TrainRefusesOddRequests) {
  const Folder folder;
  const std::string common =
      "train --input " + quoted(folder.write("a.txt", "text")) + " --output " + quoted(folder.file("t.json"));
  EXPECT_THAT(tokenizer(common + " --vocab-size 259").text, HasSubstr("expected at least 260"));
  EXPECT_THAT(tokenizer(common + " --vocab-size 99999999999999").text, HasSubstr("and at most 2147483647"));
  EXPECT_THAT(tokenizer(common + " --vocab-size 300 --pattern llama").text, HasSubstr("expected bloom or gpt2"));
  EXPECT_THAT(tokenizer(common + " --vocab-size 300 --least 0").text, HasSubstr("expected at least 1"));
  EXPECT_EQ(tokenizer(common + " --vocab-size 300 --input " + quoted(folder.file("none"))).code, 4);
  EXPECT_FALSE(std::filesystem::exists(folder.file("t.json")));
  // What exists is kept: another vocabulary, the text itself, a folder.
  folder.write("old.json", "kept");
  for (const std::string name : {"old.json", "a.txt", "."}) {
    const Outcome outcome = tokenizer("train --input " + quoted(folder.file("a.txt")) + " --vocab-size 300 --output " +
                                      quoted(folder.file(name)));
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("exists already; name another file, or remove it"));
  }
  std::ifstream old(folder.file("old.json")), text(folder.file("a.txt"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(old), {}), "kept");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(text), {}), "text");
}

// A full disk under what is printed.
TEST(TokenizerCommand, OutputThatCannotBeWrittenIsSaid) {
  for (const char* line : {"encode --tokenizer bytes", "decode --tokenizer bytes"}) {
    std::string input;
    for (int k = 0; k < 20'000; ++k) input += line[0] == 'e' ? "\"text\"\n" : "[65]\n";
    const Folder folder;
    const Outcome outcome = cli_test::run(std::string(TRAINER_EXE) + " tokenizer " + line + " <" +
                                          quoted(folder.write("in", input)) + " >/dev/full");
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_EQ(outcome.text, "trainer: standard output: cannot be written; what was printed is not complete\n");
  }
}

}  // namespace
}  // namespace espalier::app::tokenizers_test
