#include "text/text_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "text/byte_tokenizer.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using text_test::Folder;

constexpr std::int32_t kEnd = ByteTokenizer::kEndOfDocument;

TEST(TextDataset, EveryTokenButTheFirstIsATargetOnce) {
  const Folder folder;
  for (std::size_t length = 1; length < 14; ++length) {
    const std::string text = std::string("abcdefghijklmnop").substr(0, length);
    const TextDataset dataset({folder.write("a.txt", text)}, {}, ByteTokenizer(), 4);
    std::vector<std::int32_t> targets;
    for (std::int64_t sample = 0; sample < dataset.sets()[0].samples; ++sample) {
      std::vector<std::int32_t> tokens(5);
      std::vector<std::uint8_t> mask(4, 1);
      dataset.read(0, sample, tokens, mask);
      for (std::size_t k = 0; k < 4; ++k) {
        if (mask[k] != 0) targets.push_back(tokens[k + 1]);
      }
    }
    std::vector<std::int32_t> wanted(text.begin() + 1, text.end());
    wanted.push_back(kEnd);
    EXPECT_EQ(targets, wanted) << length;
  }
}

TEST(TextDataset, OneSetAFileWithItsDocumentsInARow) {
  const Folder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n");
  const auto text = folder.write("b.txt", "xyz");
  const TextDataset dataset({lines, text}, {}, ByteTokenizer(), 4);
  ASSERT_EQ(dataset.sets().size(), 2u);
  EXPECT_EQ(dataset.sets()[0].name, lines);
  EXPECT_EQ(dataset.sets()[1].split, Split::valid);
  std::vector<std::int32_t> tokens(5);
  std::vector<std::uint8_t> mask(4, 1);
  dataset.read(0, 0, tokens, mask);
  EXPECT_THAT(tokens, ElementsAre('a', 'b', kEnd, 'c', kEnd));
  EXPECT_THAT(mask, ElementsAre(1, 1, 1, 1));
}

TEST(TextDataset, FilesWithoutTextAreNamed) {
  const Folder folder;
  const auto empty = folder.write("a.txt", "");
  try {
    const TextDataset dataset({empty}, {}, ByteTokenizer(), 4);
    FAIL() << "accepted";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr(empty));
  }
}

}  // namespace
}  // namespace espalier::app
