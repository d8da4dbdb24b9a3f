// Writing pairs: nothing is wrapped, nothing half written is left, offsets are 64 bits wide.
#include "index_writer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "espalier/error.hpp"
#include "parity/data/support.hpp"
#include "token_writer.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

TEST(TokenWriterWidth, TheLargestIdOfEveryVocabularySurvives) {  // D07
  const TemporaryFolder folder;
  for (const std::int32_t vocab : {65499, 65500, 65535, 65536, 65537, 250880}) {
    SCOPED_TRACE(vocab);
    const std::string prefix = folder / std::to_string(vocab);
    IndexedTokenWriter writer;
    writer.open(prefix, vocab);
    const std::vector<std::int32_t> document = {0, vocab - 1, 5};
    writer.add_document(document);
    writer.finish();
    const auto file = IndexedFile::open(prefix);
    EXPECT_EQ(file.type(), vocab < 65500 ? ElementType::uint16 : ElementType::int32);
    std::vector<std::int32_t> back(3);
    file.read(0, 0, std::span(back));
    EXPECT_EQ(back, document);
  }
}

TEST(TokenWriterWidth, IdsOutsideTheVocabularyAreRefused) {
  const TemporaryFolder folder;
  for (const std::int32_t bad : {-1, 300, 65536}) {
    IndexedTokenWriter writer;
    writer.open(folder / "refused", 300);
    const std::vector<std::int32_t> document = {1, 2, bad};
    const auto message = message_of<IoError>([&] { writer.add_document(document); });
    EXPECT_NE(message.find("token id " + std::to_string(bad) + " at position 2"), std::string::npos) << message;
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(IndexWriter, NothingIsWrapped) {
  const TemporaryFolder folder;
  IndexWriter narrow(folder / "narrow", ElementType::uint16);
  for (const std::int32_t bad : {65536, -1}) {
    const std::int32_t tokens[] = {bad};
    EXPECT_THROW(narrow.add_sequence(std::span<const std::int32_t>(tokens)), IoError);
  }
  EXPECT_EQ(narrow.sequences(), 0);
  EXPECT_THROW(IndexWriter(folder / "small", ElementType::uint16, 65537), ConfigError);
  EXPECT_NO_THROW(IndexWriter(folder / "fits", ElementType::uint16, 65536));
}

TEST(IndexWriter, SizesIncludeTheEndMarker) {  // D09
  const TemporaryFolder folder;
  IndexedTokenWriter writer;
  writer.open(folder / "marked", 300);
  writer.add_document(std::vector<std::int32_t>{5, 6, 299});
  writer.add_document(std::vector<std::int32_t>{7, 8, 9, 299});
  writer.finish();
  const auto file = IndexedFile::open(folder / "marked");
  EXPECT_EQ(file.size(0), 3);
  EXPECT_EQ(file.size(1), 4);
  EXPECT_EQ(file.pointer(1), 6);
  EXPECT_EQ(file.tokens(), 7);
}

TEST(IndexWriter, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::int32_t tokens[] = {1, 2, 3};
  {
    IndexWriter writer(folder / "given_up", ElementType::int32);
    writer.add_sequence(std::span<const std::int32_t>(tokens));
    writer.end_document();
    EXPECT_FALSE(std::filesystem::exists(folder / "given_up.bin"));
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
  {
    IndexWriter writer(folder / "open", ElementType::int32);
    writer.add_sequence(std::span<const std::int32_t>(tokens));
    EXPECT_THROW(writer.finish(), ConfigError);  // its document was never ended
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
  IndexWriter writer(folder / "done", ElementType::int32);
  writer.add_sequence(std::span<const std::int32_t>(tokens));
  writer.end_document();
  writer.finish();
  writer.discard();
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"done.bin", "done.idx"}));
  EXPECT_THROW(IndexWriter("/nonexistent_folder/x", ElementType::int32), IoError);
  EXPECT_THROW(IndexWriter(folder / "x.bin", ElementType::int32), ConfigError);
}

/// A process that has begun a pair there and waits; its temporary files.
class WritingProcess {
 public:
  explicit WritingProcess(const std::string& prefix) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      IndexWriter writer(prefix, ElementType::int32);
      static_cast<void>(::write(ready[1], "x", 1));
      ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~WritingProcess() { kill(); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  ::pid_t process_;
};

TEST(IndexWriter, RemovesWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  WritingProcess killed(folder / "killed");
  WritingProcess alive(folder / "alive");
  ASSERT_EQ(folder.names().size(), 4U);
  killed.kill();
  EXPECT_EQ(folder.names().size(), 4U) << "nobody has tidied up yet";
  // Of another host, and no temporary file at all.
  write_file(folder / ".a.bin.tmp.another-host.99999999.0", "x");
  write_file(folder / ".a.bin.tmp.notes", "x");
  // A name of ours whose process is gone, which somebody holds nevertheless: in another container, say.
  std::string held = folder.names()[0];
  for (const std::string& name : folder.names()) {
    if (name.starts_with(".killed.bin")) held = name;
  }
  const int lock = ::open((folder / held).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  { IndexWriter(folder / "next", ElementType::int32); }
  EXPECT_EQ(folder.names().size(), 5U) << "two of the living, two that are not ours, one that is held";
  ::close(lock);
  { IndexWriter(folder / "next", ElementType::int32); }
  const auto names = folder.names();
  EXPECT_EQ(names.size(), 4U);
  EXPECT_EQ(std::count_if(names.begin(), names.end(), [](const std::string& name) { return name.starts_with(".alive."); }), 2);
}

TEST(IndexWriter, OffsetsPassFourGigabytes) {  // D01
  const TemporaryFolder folder;
  constexpr std::int32_t kSize = 1500000000;
  const std::string prefix = folder / "sparse";
  std::string index(kIndexMagic, sizeof kIndexMagic);
  const auto put = [&index](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint64_t{1});
  put(std::uint8_t{8});
  put(std::uint64_t{3});
  put(std::uint64_t{4});
  for (int i = 0; i < 3; ++i) {
    put(kSize);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    put(i * 3000000000);
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    put(i);
  }
  write_file(prefix + ".idx", index);
  write_file(prefix + ".bin", "");
  ASSERT_EQ(::truncate((prefix + ".bin").c_str(), 9000000000), 0);
  const std::uint16_t last = 12345;
  const int descriptor = ::open((prefix + ".bin").c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(descriptor, &last, sizeof last, 9000000000 - 2), 2);
  ::close(descriptor);

  const auto file = IndexedFile::open(prefix);
  std::vector<std::int32_t> token(1);
  file.read(2, kSize - 1, std::span(token));
  EXPECT_EQ(token[0], 12345);

  IndexWriter writer(folder / "twice", ElementType::uint16);
  writer.append(file);
  writer.append(file);
  writer.finish();
  const auto twice = IndexedFile::open(folder / "twice");
  EXPECT_EQ(twice.sequences(), 6);
  EXPECT_EQ(twice.pointer(2), 6000000000);
  EXPECT_EQ(twice.pointer(3), 9000000000);
  for (const std::int64_t sequence : {2, 5}) {
    twice.read(sequence, kSize - 1, std::span(token));
    EXPECT_EQ(token[0], 12345) << sequence;
  }
}

TEST(IndexWriter, StrayBytesBehindAPartAreNotMerged) {
  const TemporaryFolder folder;
  IndexWriter writer(folder / "merged", ElementType::uint16);
  writer.append(IndexedFile::open(data_fixture("bad/bin_longer")));
  writer.append(IndexedFile::open(data_fixture("indexed/second_uint16")));
  writer.finish();
  EXPECT_EQ(read_file(folder / "merged.bin"), read_file(data_fixture("indexed/merge_uint16.bin")));
  EXPECT_EQ(read_file(folder / "merged.idx"), read_file(data_fixture("indexed/merge_uint16.idx")));
}

}  // namespace
}  // namespace espalier::data_indexed
