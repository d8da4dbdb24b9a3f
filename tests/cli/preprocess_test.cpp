#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <iterator>
#include <vector>

#include "cli/process.hpp"
#include "support/process.hpp"
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

// A corpus whose name is that of the output is not replaced by it.
TEST(PreprocessCommand, AnInputIsNoOutput) {
  const Folder folder;
  const auto input = folder.write("a.bin", "{\"text\":\"ab\"}\n");
  const Outcome outcome = preprocess(input, folder.file("a"), "--format jsonl");
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("a.bin is an input, which would be replaced"));
  EXPECT_EQ(bytes_of(input), "{\"text\":\"ab\"}\n");
}

// The number of a standard stream that is closed is not given to the next file: reading there would wait for ever.
TEST(PreprocessCommand, AClosedStandardInputIsNoInput) {
  const Folder folder;
  const Outcome outcome = preprocess("/dev/stdin", folder.file("a"), "--format jsonl <&-");
  EXPECT_EQ(outcome.code, 4) << outcome.text;
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
  // One output a language, or not: what is missing is said.
  const std::string braces = folder.file("{language}");
  EXPECT_THAT(preprocess(input, braces).text, HasSubstr("nothing says the language"));
  EXPECT_THAT(preprocess(input, folder.file("a"), "--language-from-name").text,
              HasSubstr("needs {language} in its prefix"));
  EXPECT_THAT(preprocess(input, braces, "--language-key lang").text, HasSubstr("--language-key: is for JSONL"));
  EXPECT_EQ(preprocess(input, folder.file("a"), "--piece-bytes 0").code, 2);
  // What is not packed as its name says leaves nothing behind, either.
  EXPECT_EQ(preprocess(folder.write("b.txt.zst", "plain"), folder.file("b")).code, 4);
  EXPECT_EQ(preprocess(folder.write("b.txt.gz", "\x1f\x8b\x08"), folder.file("b")).code, 4);
  EXPECT_THAT(names_in(folder), UnorderedElementsAre("a.txt", "b.txt.gz", "b.txt.zst"));
  // The folder of the output is made.
  EXPECT_EQ(preprocess(input, folder.file("new/folder/a")).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("new/folder/a.idx")));
}

/// JSONL whose lines differ in length, some of them empty.
std::string lines(int count) {
  std::string text;
  for (int line = 0; line < count; ++line) {
    const auto size = static_cast<std::size_t>(line * 37 % 101);
    text += "{\"id\":" + std::to_string(line) + ",\"lang\":\"" + (line % 3 == 0 ? "fr" : "en") + "\",\"text\":\"" +
            std::string(size, static_cast<char>('a' + line % 26)) + "\"}\n";
  }
  return text;
}

// Whatever the number of threads and ranks.
TEST(PreprocessCommand, OutputIsThatOfOneThread) {
  const Folder folder;
  const auto input = folder.write("a.jsonl", lines(5000));
  ASSERT_EQ(preprocess(input, folder.file("serial"), "--threads 1").code, 0);
  const std::string bin = bytes_of(folder.file("serial.bin")), idx = bytes_of(folder.file("serial.idx"));
  const auto same = [&](const Outcome& outcome, const std::string& name) {
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_TRUE(bytes_of(folder.file(name + ".bin")) == bin) << name;
    EXPECT_TRUE(bytes_of(folder.file(name + ".idx")) == idx) << name;
  };
  same(preprocess(input, folder.file("threads"), "--threads 3 --piece-bytes 5000"), "threads");
  const std::string command =
      std::string(MPIEXEC) + " -n 3 " + TRAINER_EXE + " preprocess --input " + quoted(input) + " --piece-bytes 5000 ";
  const Outcome ranks = run(command + "--output " + quoted(folder.file("ranks")));
  same(ranks, "ranks");
  EXPECT_THAT(ranks.text, HasSubstr("4950 documents"));
  ASSERT_EQ(run("gzip -k " + quoted(input)).code, 0);
  same(preprocess(input + ".gz", folder.file("packed"), "--piece-bytes 5000"), "packed");
  const std::string piped =
      "cat " + quoted(input) + " | " + TRAINER_EXE + " preprocess --input /dev/stdin --format jsonl ";
  same(run(piped + "--piece-bytes 5000 --output " + quoted(folder.file("pipe"))), "pipe");

  // Languages over ranks, which each write whole outputs.
  const Outcome split = run(command + "--language-key lang --output " + quoted(folder.file("{language}")));
  ASSERT_EQ(split.code, 0) << split.text;
  ASSERT_EQ(preprocess(input, folder.file("one-{language}"), "--language-key lang --threads 1").code, 0);
  for (const std::string name : {"fr.bin", "fr.idx", "en.bin", "en.idx"})
    EXPECT_TRUE(bytes_of(folder.file(name)) == bytes_of(folder.file("one-" + name))) << name;
  EXPECT_FALSE(std::filesystem::exists(folder.file("languages.parts")));
}

// A bad line that one rank meets is told once, with its number, and nothing stays.
TEST(PreprocessCommand, ABadLineEndsAllRanks) {
  const Folder folder, other;
  const auto input = folder.write("a.jsonl", lines(3000) + "{\n" + lines(3000));
  const Outcome outcome = run(std::string(MPIEXEC) + " -n 3 " + TRAINER_EXE + " preprocess --input " + quoted(input) +
                              " --piece-bytes 5000 --output " + quoted(other.file("a")));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.text, HasSubstr(input + ":3001: not JSON"));
  EXPECT_EQ(testing_support::count_of(outcome.text, "not JSON"), 1) << outcome.text;
  EXPECT_THAT(names_in(other), IsEmpty());
}

/// Starts a job of some hundred pieces and sends it a signal when some are done.
testing_support::Ended cut_off(const std::vector<std::string>& command, const Folder& folder, int signal) {
  testing_support::Process process(command, {}, folder.file("log"));
  const std::filesystem::path parts = folder.file("a.parts");
  std::size_t done = 0;
  while (process.running() && done < 20) {
    std::error_code error;
    done = 0;
    for (const auto& entry : std::filesystem::directory_iterator(parts, error))
      done += entry.path().extension() == ".part";
  }
  for (const pid_t rank : process.ranks("trainer")) ::kill(rank, signal);
  return process.wait(60);
}

// Killed or stopped in the middle, alone or under mpiexec: the same command goes on and ends in the same bytes.
TEST(PreprocessCommand, AJobThatWasCutOffGoesOn) {
  const Folder inputs;
  const auto input = inputs.write("a.jsonl", lines(60000));
  ASSERT_EQ(preprocess(input, inputs.file("whole")).code, 0);
  for (const int ranks : {1, 2}) {
    for (const int signal : {SIGKILL, SIGTERM}) {
      const Folder folder;
      std::vector<std::string> command = {TRAINER_EXE,      "preprocess", "--input", input,           "--output",
                                          folder.file("a"), "--threads",  "1",       "--piece-bytes", "10000"};
      if (ranks > 1) command.insert(command.begin(), {MPIEXEC, "-n", std::to_string(ranks)});
      const auto ended = cut_off(command, folder, signal);
      EXPECT_NE(ended.code, 0);
      EXPECT_FALSE(std::filesystem::exists(folder.file("a.bin")));
      if (signal == SIGTERM) {
        EXPECT_EQ(ended.code, 75) << ended.output;
        EXPECT_THAT(ended.output, HasSubstr("the same command goes on"));
      }
      const auto second = testing_support::run_command(command, {}, folder.file("log"), 60);
      EXPECT_EQ(second.code, 0) << second.output;
      EXPECT_THAT(second.output, ::testing::ContainsRegex("[1-9][0-9]+ of [0-9]+ pieces were there from a run before"));
      EXPECT_TRUE(bytes_of(folder.file("a.bin")) == bytes_of(inputs.file("whole.bin")));
      EXPECT_TRUE(bytes_of(folder.file("a.idx")) == bytes_of(inputs.file("whole.idx")));
      EXPECT_FALSE(std::filesystem::exists(folder.file("a.parts")));
    }
  }
}

// As on a full disk: what is finished stays, what is not leaves nothing, and the same command goes on.
TEST(PreprocessCommand, AWriteThatFailsLeavesNoHalfOfAPiece) {
  const Folder folder;
  const auto input = folder.write("a.jsonl", lines(140000));
  ASSERT_EQ(preprocess(input, folder.file("whole")).code, 0);
  // 10 MiB a file, in blocks of 512 bytes: less than the one piece, more than MPI's shared memory.
  const std::string command = std::string(TRAINER_EXE) + " preprocess --threads 1 --input " + quoted(input) + " --output " + quoted(folder.file("a"));
  const Outcome full = run("trap '' XFSZ; ulimit -f 20480; " + command);
  EXPECT_EQ(full.code, 4) << full.text;
  EXPECT_THAT(full.text, HasSubstr("a.parts/000000_000000000.part.tmp: cannot be written: File too large"));
  EXPECT_THAT(full.text, HasSubstr("the same command goes on"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.parts/000000_000000000.part.tmp")));
  std::ofstream(folder.file("a.parts/000000_000000007.part.tmp")) << "of a killed run";
  // The pieces are small enough now, but the whole is not.
  const Outcome long_output = run("trap '' XFSZ; ulimit -f 20480; " + command + " --restart --piece-bytes 5000000");
  EXPECT_EQ(long_output.code, 4) << long_output.text;
  EXPECT_THAT(long_output.text, HasSubstr("a.bin: writing failed after "));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  const Outcome again = run(command + " --piece-bytes 5000000");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("were there from a run before"));
  EXPECT_TRUE(bytes_of(folder.file("a.bin")) == bytes_of(folder.file("whole.bin")));
}

// A part that was damaged meanwhile is noticed, and made anew by the next run.
TEST(PreprocessCommand, ADamagedPartIsMadeAnew) {
  const Folder folder;
  const auto input = folder.write("a.jsonl", lines(60000));
  ASSERT_EQ(preprocess(input, folder.file("whole")).code, 0);
  const std::vector<std::string> command = {TRAINER_EXE,      "preprocess", "--input", input,           "--output",
                                            folder.file("a"), "--threads",  "1",       "--piece-bytes", "10000"};
  cut_off(command, folder, SIGTERM);
  const std::string part = folder.file("a.parts/000000_000000003.part");
  std::string bytes = bytes_of(part);
  ASSERT_GT(bytes.size(), 2000u);
  bytes[bytes.size() - 1000] ^= 1;
  folder.write("a.parts/000000_000000003.part", bytes);
  const auto second = testing_support::run_command(command, {}, folder.file("log"), 60);
  EXPECT_EQ(second.code, 4);
  EXPECT_THAT(second.output, HasSubstr(part + ": is damaged and was removed"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.bin")));
  EXPECT_EQ(testing_support::run_command(command, {}, folder.file("log"), 60).code, 0);
  EXPECT_TRUE(bytes_of(folder.file("a.bin")) == bytes_of(folder.file("whole.bin")));
}

// Ten gigabytes without a line end, as a sparse file: named in bounded memory, or passed over.
TEST(PreprocessCommand, ALineThatDoesNotEnd) {
  const Folder folder;
  const auto input = folder.write("a.jsonl", "{\"text\":\"x\"}\n");
  std::filesystem::resize_file(input, std::uintmax_t{10} << 30);
  const Outcome refused =
      run("ulimit -v 4000000; " + std::string(TRAINER_EXE) + " preprocess --input " + quoted(input) +
          " --threads 2 --max-document-bytes 1000000 --output " + quoted(folder.file("a")));
  EXPECT_EQ(refused.code, 4) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr(input + ":2: a line of more than 1000000 bytes"));
  // Of a pipe that does not end, too.
  const Outcome endless = run("timeout -s KILL 20 " + std::string(TRAINER_EXE) + " preprocess --input /dev/zero --format jsonl --threads 2 " +
                              "--max-document-bytes 1000000 --output " + quoted(folder.file("b")));
  EXPECT_EQ(endless.code, 4) << endless.text;
  EXPECT_THAT(endless.text, HasSubstr("/dev/zero:1: a line of more than 1000000 bytes"));
}

}  // namespace
}  // namespace espalier::cli_test
