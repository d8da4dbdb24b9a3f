// The cached index arrays: names, staleness, damage.
#include "cache.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "core_names.hpp"
#include "espalier/error.hpp"
#include "index_writer.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

void drop_from_page_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

std::int64_t pages_in_memory(const std::string& path) {
  const auto file = MappedFile::open(path);
  std::vector<unsigned char> pages((file->size_bytes() + 4095) / 4096);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(file->data()), file->size_bytes(), pages.data()), 0);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; });
}

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() : prefix_(copy_pair("corpora/a", folder_)), file_(IndexedFile::open(prefix_)) {}

  IndexRequest request() const { return {&file_, "", "train", {0, 285}, 1200, 64, 42}; }

  TemporaryFolder folder_;
  std::string prefix_;
  IndexedFile file_;
};

TEST_F(CacheTest, NamesAreThePeers) {
  const auto names = read_json(data_fixture("cache/bigscience.json"))["names"];
  ASSERT_EQ(names.size(), 3U);
  for (const auto& row : names) {
    IndexRequest asked = request();
    asked.name = row["name"];
    asked.samples_wanted = row["num_samples"];
    asked.seq_length = row["seq_length"];
    asked.seed = row["seed"];
    const std::string stem = std::filesystem::path(row["prefix"].get<std::string>()).filename().string();
    const CacheFiles files = cache_files(asked);
    const std::string ours[] = {files.document, files.sample, files.shuffle};
    for (std::size_t k = 0; k < 3; ++k) {
      const std::string theirs = std::filesystem::path(row["files"][k].get<std::string>()).filename().string();
      EXPECT_EQ(ours[k], prefix_ + theirs.substr(stem.size()));
    }
  }
}

CoreDataset core_dataset_of(const nlohmann::ordered_json& description) {
  return {description["dataset_path"], description["num_samples"], description["index_split"], description["random_seed"],
          description["sequence_length"], description["split"], description["tokenizer"].dump()};
}

// Every description that core wrote, and its hash, from what it says.
TEST(CoreNames, DescriptionsAndHashesAreThePeers) {
  const auto truth = nlohmann::ordered_json::parse(read_file(data_fixture("cache/megatron_core.json")));
  for (const auto& entry : truth["entries"]) {
    const std::string text = entry["description"];
    EXPECT_EQ(core_description(core_dataset_of(nlohmann::ordered_json::parse(text))), text);
    EXPECT_EQ(core_hash(text), entry["md5"]);
    const CoreFiles files = core_files("", text, entry["split"].get<std::string>());
    EXPECT_EQ((std::vector<std::string>{files.description, files.arrays.document, files.arrays.sample, files.arrays.shuffle}), entry["files"]);
  }
  const auto blend = truth["blend_entry"];
  const auto description = nlohmann::ordered_json::parse(blend["description"].get<std::string>());
  std::vector<CoreDataset> parts;
  for (const auto& part : description["datasets"]) {
    parts.push_back(core_dataset_of(part));
  }
  const std::string text = core_blend_description(parts, description["split"].get<std::string>(),
                                                  description["weights"].get<std::vector<double>>(), description["size"]);
  EXPECT_EQ(text, blend["description"]);
  EXPECT_EQ(core_hash(text), blend["md5"]);
}

TEST_F(CacheTest, ReusedWhenNothingChanged) {
  EXPECT_EQ(why_not_cached(request()), "there is none yet");
  EXPECT_THROW(load_index(request()), IoError);
  store_index(request());
  EXPECT_EQ(why_not_cached(request()), std::nullopt);
  EXPECT_EQ(load_index(request()).samples(), load_index(request()).plan().samples);
}

// A touch of a mapped file makes the kernel read megabytes around it, unless it is told that the next touch lies elsewhere.
TEST_F(CacheTest, OpeningReadsNoMoreThanItLooksAt) {
  std::vector<std::int32_t> document(10);
  IndexWriter writer(folder_ / "wide", ElementType::uint16);
  for (int k = 0; k < 300'000; ++k) {
    writer.add_sequence(std::span<const std::int32_t>(document));
    writer.end_document();
  }
  writer.finish();
  const auto written = IndexedFile::open(folder_ / "wide");
  const IndexRequest asked{&written, "", "train", {0, written.sequences()}, 700'000, 4, 1};
  store_index(asked);
  std::vector<std::string> files = cache_files(asked).all();
  for (const std::string& path : files) {
    drop_from_page_cache(path);
    if (pages_in_memory(path) > 0) {
      GTEST_SKIP() << path << " lies on a file system of memory";
    }
  }
  const IndexArrays arrays = load_index(asked);
  for (const std::string& path : files) {
    EXPECT_LE(pages_in_memory(path), 1) << path << " of " << std::filesystem::file_size(path) << " bytes";
  }
  arrays.shuffled(arrays.samples() / 2);  // checks one block, which is all that is read
  EXPECT_GE(pages_in_memory(files[2]), static_cast<std::int64_t>(kCheckBlock / 4096));
  EXPECT_LE(pages_in_memory(files[2]), static_cast<std::int64_t>(kCheckBlock / 4096) + 1);
}

TEST_F(CacheTest, ADifferentSplitIsNoticed) {
  store_index(request());
  IndexRequest other = request();
  other.range = {0, 150};
  const auto why = why_not_cached(other);
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("sequences of the split = 0 to 285"), std::string::npos) << *why;
  EXPECT_THROW(load_index(other), IoError);
}

TEST_F(CacheTest, ReplacedDataAreNoticed) {  // D21
  const auto pair_of = [&](std::vector<int> sizes) {
    IndexWriter writer(folder_ / "data", ElementType::uint16);
    for (const int size : sizes) {
      writer.add_sequence(std::span<const std::int32_t>(std::vector<std::int32_t>(static_cast<std::size_t>(size), 1)));
      writer.end_document();
    }
    writer.finish();
  };
  pair_of({30, 40, 50, 60});
  const auto time = std::filesystem::last_write_time(folder_ / "data.bin");
  const auto asked = [](const IndexedFile& file) { return IndexRequest{&file, "", "train", {0, 4}, 10, 8, 1}; };
  const auto before = IndexedFile::open(folder_ / "data");
  store_index(asked(before));
  pair_of({60, 50, 40, 30});
  for (const std::string extension : {".bin", ".idx"}) {
    std::filesystem::last_write_time(folder_ / ("data" + extension), time);
  }
  const auto after = IndexedFile::open(folder_ / "data");
  EXPECT_EQ(before.tokens(), after.tokens());
  const auto why = why_not_cached(asked(after));
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("data fingerprint"), std::string::npos) << *why;
}

std::int64_t read_all(const IndexArrays& arrays) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < arrays.samples(); ++i) {
    const auto place = arrays.place(arrays.shuffled(i));
    sum += place.offset + arrays.sequence(place.position);
  }
  return sum;
}

TEST_F(CacheTest, DamageIsNoticedBeforeItIsRead) {  // D12
  store_index(request());
  const std::int64_t sound = read_all(load_index(request()));
  for (const std::string& path : cache_files(request()).all()) {
    const std::string whole = read_file(path);
    // Lengths, at open.
    for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string(), whole + "x"}) {
      write_file(path, damaged);
      const auto why = why_not_cached(request());
      ASSERT_TRUE(why);
      EXPECT_NE(why->find(path), std::string::npos) << *why;
      EXPECT_THROW(load_index(request()), IoError);
    }
    // Content, at the first touch of the block; the next start builds anew.
    std::string zeros = whole;
    std::fill(zeros.begin() + static_cast<std::ptrdiff_t>(zeros.size() / 3),
              zeros.begin() + static_cast<std::ptrdiff_t>(zeros.size() / 3 * 2), '\0');
    write_file(path, zeros);
    EXPECT_EQ(why_not_cached(request()), std::nullopt);
    const auto message = message_of<IoError>([&] { read_all(load_index(request())); });
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_TRUE(why_not_cached(request()));
    store_index(request());
    EXPECT_EQ(read_file(path), whole);
    std::filesystem::remove(path);
    EXPECT_TRUE(why_not_cached(request()));
    store_index(request());
    EXPECT_EQ(read_all(load_index(request())), sound);
  }
}

TEST_F(CacheTest, ADamagedCheckFileIsNoCache) {
  store_index(request());
  for (const std::string& array : cache_files(request()).all()) {
    const std::string path = check_path(array);
    const std::string whole = read_file(path);
    std::string changed = whole;
    changed[whole.find("seed = 42") + 7] = '5';
    for (const std::string& damaged : {changed, whole.substr(0, whole.size() / 2), std::string(), whole + "x"}) {
      write_file(path, damaged);
      const auto why = why_not_cached(request());
      ASSERT_TRUE(why);
      EXPECT_NE(why->find(path), std::string::npos) << *why;
    }
    write_file(path, whole);
    EXPECT_EQ(why_not_cached(request()), std::nullopt);
  }
}

TEST_F(CacheTest, NothingShowsBeforeEverythingIsWritten) {
  store_index(request(), {[&] {
                for (const std::string& name : folder_.names()) {
                  EXPECT_TRUE(name.starts_with(".") || !name.ends_with(".npy")) << name;
                }
              }});
  for (const std::string& name : folder_.names()) {
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
  }
  EXPECT_THROW(store_index(request(), {[] { throw IoError("no space"); }}), IoError);
  EXPECT_EQ(folder_.names().size(), 8U);  // the pair, and three arrays with their check files of the first build
}

TEST_F(CacheTest, AMappedIndexOutlivesARebuild) {
  store_index(request());
  const IndexArrays arrays = load_index(request());
  const std::int64_t first = arrays.shuffled(0);
  IndexRequest other = request();
  other.range = {0, 150};
  store_index(other);
  EXPECT_EQ(arrays.shuffled(0), first);
}

TEST_F(CacheTest, AFolderOfItsOwnKeepsEqualNamesApart) {
  std::filesystem::create_directories(folder_ / "fr");
  std::filesystem::create_directories(folder_ / "cache");
  for (const std::string extension : {".bin", ".idx"}) {
    write_file(folder_ / ("fr/a" + extension), read_file(prefix_ + extension));
  }
  const auto french = IndexedFile::open(folder_ / "fr/a");
  IndexRequest here = request();
  here.folder = folder_ / "cache";
  IndexRequest there = here;
  there.file = &french;
  EXPECT_NE(cache_files(here).document, cache_files(there).document);
  EXPECT_TRUE(cache_files(here).document.starts_with(folder_ / "cache/a_")) << cache_files(here).document;
  here.folder = folder_ / "made/on/the/way";
  store_index(here);
  EXPECT_EQ(why_not_cached(here), std::nullopt);
  here.folder = folder_ / "fr/a.bin";  // a file
  EXPECT_THROW(store_index(here), IoError);
}

}  // namespace
}  // namespace espalier::data_indexed
