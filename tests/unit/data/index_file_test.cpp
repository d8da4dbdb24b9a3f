// What is refused when a pair of .bin and .idx is opened, and how it is said.
#include "index_file.hpp"

#include <sys/stat.h>

#include <chrono>
#include <set>
#include <thread>

#include "espalier/error.hpp"
#include "index_writer.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

std::string open_error(const std::string& prefix) {
  return message_of<Error>([&] { IndexedFile::open(prefix); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(BadPairs, EachIsRefusedWithAMessageOfItsOwn) {
  const auto pairs = read_json(data_fixture("bad/bad.json"))["pairs"];
  ASSERT_GE(pairs.size(), 30U);
  std::set<std::string> seen;
  for (const auto& [name, pair] : pairs.items()) {
    SCOPED_TRACE(name);
    const std::string prefix = data_fixture("bad/" + name);
    if (name == "bin_longer" || name == "doc_idx_last_short") {  // still readable: said, not refused
      const auto file = IndexedFile::open(prefix);
      ASSERT_EQ(file.warnings().size(), 1U);
      EXPECT_TRUE(contains(file.warnings()[0], prefix)) << file.warnings()[0];
      continue;
    }
    std::string message = open_error(prefix);
    EXPECT_TRUE(contains(message, prefix)) << message;
    EXPECT_FALSE(contains(message, "\n"));
    while (contains(message, prefix)) {
      message.erase(message.find(prefix), prefix.size());
    }
    EXPECT_TRUE(seen.insert(message).second) << "same message as another damage: " << message;
  }
}

TEST(BadPairs, SizesAreSaid) {
  // D11: six damages, six messages, expected and actual sizes in each.
  const TemporaryFolder folder;
  const auto damaged = [&](const std::string& extension, auto change) {
    const std::string prefix = copy_pair("indexed/basic_uint16", folder);
    std::string bytes = read_file(prefix + extension);
    change(bytes);
    write_file(prefix + extension, bytes);
    return open_error(prefix);
  };
  const auto short_data = damaged(".bin", [](std::string& bytes) { bytes.pop_back(); });
  EXPECT_TRUE(contains(short_data, "basic_uint16.bin") && contains(short_data, "476") && contains(short_data, "475"))
      << short_data;
  const auto short_index = damaged(".idx", [](std::string& bytes) { bytes.pop_back(); });
  EXPECT_TRUE(contains(short_index, "330") && contains(short_index, "329")) << short_index;
  const auto long_index = damaged(".idx", [](std::string& bytes) { bytes.append(8, '\0'); });
  EXPECT_TRUE(contains(long_index, "330") && contains(long_index, "338")) << long_index;
  const auto magic = damaged(".idx", [](std::string& bytes) { bytes[3] = 'X'; });
  EXPECT_TRUE(contains(magic, "MMIDIDX") && contains(magic, "330 bytes")) << magic;
  const auto version = damaged(".idx", [](std::string& bytes) { bytes[9] = 2; });
  EXPECT_TRUE(contains(version, "version 2")) << version;
  const auto empty = damaged(".idx", [](std::string& bytes) { bytes.clear(); });
  EXPECT_TRUE(contains(empty, "0 bytes")) << empty;
  EXPECT_EQ((std::set<std::string>{short_data, short_index, long_index, magic, version, empty}.size()), 6U);
}

TEST(BadPairs, PrefixesThatAreNone) {  // D13
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(open_error(folder.path()), "is a folder"));
  const std::string prefix = copy_pair("indexed/basic_uint16", folder);
  EXPECT_TRUE(contains(open_error(prefix + ".bin"), "ends in .bin"));
  EXPECT_TRUE(contains(open_error(prefix + ".idx"), "without its extension"));
  EXPECT_TRUE(contains(open_error(folder / "nothing"), "neither"));
  std::filesystem::remove(prefix + ".bin");
  EXPECT_TRUE(contains(open_error(prefix), prefix + ".bin: is missing"));
  write_file(prefix + ".bin", "x");
  std::filesystem::remove(prefix + ".idx");
  EXPECT_TRUE(contains(open_error(prefix), prefix + ".idx: is missing"));
}

TEST(BadPairs, APipeIsNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.idx").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder / "pipe.bin").c_str(), 0600), 0);
  EXPECT_TRUE(contains(open_error(folder / "pipe"), "pipe.idx: is not a regular file"));
  const std::string prefix = copy_pair("indexed/basic_uint16", folder);
  EXPECT_TRUE(IndexedFile::open(prefix, folder / "pipe.bin").read_whole()) << "a pipe is no stamp, either";
}

TEST(TypeCodes, EveryOneIsWrittenAndRead) {  // D06
  const TemporaryFolder folder;
  for (int code = 1; code <= 8; ++code) {
    SCOPED_TRACE(code);
    const auto type = type_of_code(static_cast<std::uint8_t>(code));
    ASSERT_TRUE(type);
    const std::string prefix = folder / ("code" + std::to_string(code));
    IndexWriter writer(prefix, *type);
    if (is_integer(*type)) {
      const std::int64_t tokens[] = {smallest_token(*type), 7, largest_token(*type)};
      writer.add_sequence(std::span<const std::int64_t>(tokens));
      writer.end_document();
      writer.finish();
      std::vector<std::int64_t> back(3);
      IndexedFile::open(prefix).read(0, 0, std::span(back));
      EXPECT_EQ(back, std::vector<std::int64_t>(std::begin(tokens), std::end(tokens)));
    } else {
      const double values[] = {1.5, -2.0, 1e6};
      writer.add_sequence(std::span<const double>(values));
      writer.end_document();
      writer.finish();
      std::vector<double> back(3);
      IndexedFile::open(prefix).read(0, 0, std::span(back));
      EXPECT_EQ(back, std::vector<double>(std::begin(values), std::end(values)));
    }
    std::string bytes = read_file(prefix + ".idx");
    EXPECT_EQ(bytes[17], code);
    for (const unsigned char wrong : {0, 9, 255}) {
      bytes[17] = static_cast<char>(wrong);
      write_file(prefix + ".idx", bytes);
      const auto message = open_error(prefix);
      EXPECT_TRUE(contains(message, prefix + ".idx") && contains(message, "code " + std::to_string(wrong))) << message;
    }
  }
}

/// A stamp is not written for an .idx that changed in the last two seconds.
void wait_until_settled() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

TEST(Stamp, SparesReadingWhatDidNotChange) {
  const TemporaryFolder folder;
  const std::string stamp = folder / "stamp";
  const std::string prefixes[] = {copy_pair("indexed/basic_uint16", folder),
                                  copy_pair("indexed/no_end_document", folder),
                                  copy_pair("dtype_conflict/bigscience_double", folder)};
  EXPECT_FALSE(IndexedFile::open(prefixes[0], stamp).write_stamp(stamp)) << "too young to be sure";
  wait_until_settled();
  for (const std::string& prefix : prefixes) {
    SCOPED_TRACE(prefix);
    const auto first = IndexedFile::open(prefix, stamp);
    EXPECT_TRUE(first.read_whole());
    ASSERT_TRUE(first.write_stamp(stamp));
    const auto second = IndexedFile::open(prefix, stamp);
    EXPECT_FALSE(second.read_whole());
    EXPECT_EQ(second.fingerprint(), first.fingerprint());
    EXPECT_EQ(second.type(), first.type());
    EXPECT_EQ(second.tokens(), first.tokens());
    EXPECT_EQ(second.warnings(), first.warnings());
  }
}

TEST(Stamp, SeesReplacedDataOfTheSameLengthAndTime) {  // D21
  const TemporaryFolder folder;
  const std::string prefix = copy_pair("indexed/basic_uint16", folder);
  const std::string stamp = folder / "stamp";
  wait_until_settled();
  ASSERT_TRUE(IndexedFile::open(prefix).write_stamp(stamp));
  const auto time = std::filesystem::last_write_time(prefix + ".idx");
  std::string bytes = read_file(prefix + ".idx");
  bytes[34] = static_cast<char>(bytes[34] + 1);  // the first size no longer fits its pointers
  write_file(prefix + ".idx", bytes);
  std::filesystem::last_write_time(prefix + ".idx", time);
  EXPECT_TRUE(contains(message_of<Error>([&] { IndexedFile::open(prefix, stamp); }), "running sum"));
}

TEST(Stamp, LengthsAreLookedAtAllTheSame) {  // D11
  const TemporaryFolder folder;
  const std::string prefix = copy_pair("indexed/basic_uint16", folder);
  const std::string stamp = folder / "stamp";
  wait_until_settled();
  ASSERT_TRUE(IndexedFile::open(prefix).write_stamp(stamp));
  std::filesystem::resize_file(prefix + ".bin", 475);
  EXPECT_TRUE(contains(message_of<Error>([&] { IndexedFile::open(prefix, stamp); }), "too short"));
  write_file(stamp, read_file(stamp) + "x");
  std::filesystem::resize_file(prefix + ".bin", 476);
  EXPECT_TRUE(IndexedFile::open(prefix, stamp).read_whole()) << "a damaged stamp says nothing";
}

TEST(Reading, AViewKeepsTheMappingAlive) {
  const TemporaryFolder folder;
  const std::string prefix = copy_pair("indexed/basic_uint16", folder);
  auto file = std::make_unique<IndexedFile>(IndexedFile::open(prefix));
  const TokenView view = file->view(7);
  file.reset();
  std::filesystem::remove(prefix + ".bin");
  const auto truth = read_json(data_fixture("indexed/basic_uint16.json"));
  EXPECT_EQ(sha256(view.data, static_cast<std::size_t>(view.count) * 2),
            truth["sequences"][7]["sha256"].get<std::string>());
}

TEST(Reading, RangesOutsideASequenceAreRefused) {
  const auto file = IndexedFile::open(data_fixture("indexed/basic_uint16"));
  std::vector<std::int32_t> tokens(3);
  EXPECT_THROW(file.read(0, 3, std::span(tokens)), IoError);
  EXPECT_THROW(file.read(0, -1, std::span(tokens)), IoError);
  EXPECT_THROW(file.read(16, 0, std::span(tokens)), IoError);
  EXPECT_THROW(file.read(-1, 0, std::span(tokens)), IoError);
  EXPECT_NO_THROW(file.read(0, 2, std::span(tokens)));
}

TEST(Reading, WideTokensAreNotCutToThirtyTwoBits) {
  const auto file = IndexedFile::open(data_fixture("indexed/basic_int64"));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size(0)));
  const auto message = message_of<IoError>([&] { file.read(0, 0, std::span(tokens)); });
  EXPECT_TRUE(contains(message, "basic_int64.bin") && contains(message, "32 bits")) << message;
}

TEST(Reading, FingerprintSeesOtherSizesInFilesOfEqualLength) {
  const TemporaryFolder folder;
  const auto written = [&](const std::string& name, std::vector<int> sizes) {
    IndexWriter writer(folder / name, ElementType::uint16);
    for (const int size : sizes) {
      writer.add_sequence(std::span<const std::int32_t>(std::vector<std::int32_t>(static_cast<std::size_t>(size), 1)));
      writer.end_document();
    }
    writer.finish();
    return IndexedFile::open(folder / name).fingerprint();
  };
  const auto first = written("a", {3, 4, 5});
  EXPECT_EQ(first, written("b", {3, 4, 5}));
  EXPECT_NE(first, written("c", {4, 3, 5}));
}

}  // namespace
}  // namespace espalier::data_indexed
