// Lists of paths as the BLOOM run kept them.
#include "path_list.hpp"

#include "espalier/error.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

TEST(PathLists, OneLineOfBloomsRun) {
  const auto lists = parse_path_lists(
      "train: 0.0002 0:0.950 /data/ak/text_document, 0.9998 0:0.950 /data/en/text_document, 3 0:1 x\n", "train.txt");
  ASSERT_EQ(lists.size(), 1U);
  EXPECT_EQ(lists[0].name, "train");
  ASSERT_EQ(lists[0].entries.size(), 3U);
  EXPECT_EQ(lists[0].entries[0].weight, 0.0002);
  EXPECT_EQ(lists[0].entries[0].range.end, 0.95);
  EXPECT_EQ(lists[0].entries[1].path, "/data/en/text_document");
  EXPECT_EQ(lists[0].entries[2].path, "x");
}

TEST(PathLists, SeveralInQuotesOrOneALine) {
  const std::string quoted = "\"valid_ak: 1 0.95:1 ak\" \"valid_ar: 0.3 0.95:1 ar, 0.7 0.9:1 arz\"";
  const std::string lines = "valid_ak: 1 0.95:1 ak\n\n  valid_ar : 0.3 0.95:1 ar,0.7 0.9:1 arz\r\n";
  for (const std::string& text : {quoted, lines}) {
    const auto lists = parse_path_lists(text, "valid.txt");
    ASSERT_EQ(lists.size(), 2U);
    EXPECT_EQ(lists[0].name, "valid_ak");
    EXPECT_EQ(lists[1].name, "valid_ar");
    ASSERT_EQ(lists[1].entries.size(), 2U);
    EXPECT_EQ(lists[1].entries[1].path, "arz");
    EXPECT_EQ(lists[1].entries[1].range.start, 0.9);
  }
}

TEST(PathLists, MistakesNameFileAndLine) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "holds no list"},
      {"\n \n", "holds no list"},
      {"train 1 0:1 a", "f:1"},
      {"a b: 1 0:1 x", "does not start with one name"},
      {"\ntrain: 0.3x 0:1 a", "f:2: the weight \"0.3x\" of a"},
      {"train: 0 0:1 a", "not a positive number"},
      {"train: 1 0:1", "is not WEIGHT START:END PATH"},
      {"train: 1 0:1 a b", "is not WEIGHT START:END PATH"},
      {"train: 1 0.9:0.1 a", "START <= END"},
      {"train: 1 0:1 a,, 1 0:1 b", "is not WEIGHT START:END PATH"},
      {"train:", "names no path"},
      {"v: 1 0:1 a\nv: 1 0:1 b", "f:2: the name \"v\" comes twice"},
      {"\"v: 1 0:1 a\" w: 1 0:1 b", "outside of the double quotes"},
  };
  for (const auto& [text, part] : mistakes) {
    const auto message = message_of<ConfigError>([&, &t = text] { parse_path_lists(t, "f"); });
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
  }
  EXPECT_THROW(read_path_lists("/nonexistent"), IoError);
  const TemporaryFolder folder;
  EXPECT_THROW(read_path_lists(folder.path()), IoError);
  write_file(folder / "empty", "");
  const auto message = message_of<ConfigError>([&] { read_path_lists(folder / "empty"); });
  EXPECT_NE(message.find("empty: holds no list"), std::string::npos) << message;
}

}  // namespace
}  // namespace espalier::data_indexed
