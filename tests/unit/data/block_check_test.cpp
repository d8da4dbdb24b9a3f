// Files that are checked block by block, when a block is touched first.
#include "block_check.hpp"

#include "espalier/error.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

constexpr std::size_t kBytes = 2 * kCheckBlock + 1000;  // three blocks, the last one short

class BlockCheckTest : public ::testing::Test {
 protected:
  BlockCheckTest() : path_(folder_ / "array"), check_path_(folder_ / "array.check"), bytes_(kBytes, '\0') {
    for (std::size_t k = 0; k < kBytes; ++k) {
      bytes_[k] = static_cast<char>(k * 7 + k / 1000);
    }
    write_file(path_, bytes_);
    BlockHasher hasher;
    for (std::size_t at = 0; at < kBytes; at += 300001) {  // pieces that do not fit the blocks
      hasher.add(bytes_.data() + at, std::min<std::size_t>(300001, kBytes - at));
    }
    BlockCheck check{"made = from nothing\nseed = 3\n", hasher.bytes(), {}};
    check.blocks = hasher.finish();
    write_file(check_path_, check.to_text());
  }

  CheckedFile open(std::shared_ptr<const MappedFile> mapping) const {
    std::string why;
    auto check = BlockCheck::read(check_path_, why);
    EXPECT_TRUE(check) << why;
    return {std::move(mapping), std::move(*check), check_path_};
  }

  TemporaryFolder folder_;
  std::string path_;
  std::string check_path_;
  std::string bytes_;
};

TEST_F(BlockCheckTest, ASoundFilePasses) {
  const auto mapping = MappedFile::open(path_);
  const CheckedFile file = open(mapping);
  EXPECT_NO_THROW(file.check_all());
  EXPECT_NO_THROW(file.touch(mapping->data() + kBytes - 1));
  std::string why;
  const auto check = BlockCheck::read(check_path_, why);
  EXPECT_EQ(check->setting("seed"), "3");
  EXPECT_EQ(check->setting("see"), "");
  EXPECT_EQ(check->blocks.size(), 3U);
}

TEST_F(BlockCheckTest, OnlyTheDamagedBlockIsRefused) {
  bytes_[kCheckBlock + 5] = static_cast<char>(bytes_[kCheckBlock + 5] ^ 1);
  write_file(path_, bytes_);
  const auto mapping = MappedFile::open(path_);
  const CheckedFile file = open(mapping);
  EXPECT_NO_THROW(file.touch(mapping->data()));
  EXPECT_NO_THROW(file.touch(mapping->data() + kCheckBlock - 1));
  EXPECT_NO_THROW(file.touch(mapping->data() + 2 * kCheckBlock));
  EXPECT_TRUE(std::filesystem::exists(check_path_));
  const auto message = message_of<IoError>([&] { file.touch(mapping->data() + 2 * kCheckBlock - 1); });
  EXPECT_NE(message.find(path_ + ": bytes 1048576 to 2097152"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(check_path_)) << "the next start is to build it anew";
  EXPECT_THROW(file.check_all(), IoError);
}

TEST_F(BlockCheckTest, ACheckFileMustBeWhole) {
  const std::string whole = read_file(check_path_);
  std::string why;
  for (const std::string& text :
       {whole.substr(0, whole.size() - 1), whole.substr(20), std::string(), sealed("nothing\n"),
        sealed("espalier array check 1\nbytes = 5\nblocks = 2\n0\n0\n")}) {
    write_file(check_path_, text);
    EXPECT_FALSE(BlockCheck::read(check_path_, why));
    EXPECT_NE(why.find(check_path_), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace espalier::data_indexed
