// Document, sample and shuffle index and the samples themselves, byte for byte as the bigscience fork builds them
// (fixtures gpt_bigscience/; where it stops with an assertion, Megatron-LM core's arrays in
// gpt_megatron_core/bs_fail_*).
#include <cmath>

#include "cache.hpp"
#include "espalier/error.hpp"
#include "npy.hpp"
#include "parity/data/support.hpp"
#include "sample_reader.hpp"
#include "support/numpy_normal.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

struct Set {
  std::string name;
  std::int64_t wanted;
  SequenceRange range;
};

std::vector<Set> sets_of(const nlohmann::json& truth, std::int64_t sequences) {
  std::vector<Set> sets;
  if (truth.contains("ranges")) {
    const std::map<std::string, std::size_t> position = {{"train", 0}, {"valid", 1}, {"test", 2}};
    for (const auto& range : truth["ranges"]) {
      sets.push_back({range[1], truth["num_samples"][position.at(range[0])],
                      range_of(parse_range(range[2].get<std::string>()), sequences)});
    }
  } else {
    const auto ranges = split_ranges(truth["splits_string"].get<std::string>(), sequences);
    const std::string names[] = {"train", "valid", "test"};
    for (std::size_t k = 0; k < 3; ++k) {
      sets.push_back({names[k], truth["num_samples"][k], ranges[k]});
    }
  }
  return sets;
}

void expect_samples(const SampleReader& reader, const nlohmann::json& truth) {
  const auto length = static_cast<std::size_t>(reader.arrays().plan().seq_length + 1);
  std::vector<std::int32_t> tokens(length);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < reader.samples(); ++i) {
    reader.read(i, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
    const auto key = std::to_string(i);
    if (truth["samples"].contains(key)) {
      const auto& sample = truth["samples"][key];
      if (sample.contains("tokens")) {
        EXPECT_EQ(tokens, as_vector<std::int32_t>(sample["tokens"])) << "sample " << i;
      } else {
        const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
        EXPECT_EQ(sha256_of<std::int64_t>(wide), sample["sha256"].get<std::string>()) << "sample " << i;
      }
    }
  }
  EXPECT_EQ(sha256_of<std::int64_t>(all), truth["all_samples_sha256"].get<std::string>());
}

class SamplesParity : public ::testing::TestWithParam<std::string> {};

TEST_P(SamplesParity, SameFilesAndSamples) {
  const std::string fixture = "gpt_bigscience/" + GetParam() + "/";
  const auto truth = read_json(data_fixture(fixture + "case.json"));
  const TemporaryFolder folder;
  const auto file = IndexedFile::open(copy_pair(truth["corpus"].get<std::string>(), folder));
  ASSERT_EQ(file.sequences(), truth["num_sequences_in_corpus"].get<std::int64_t>());
  std::vector<std::string> names = {std::filesystem::path(file.prefix()).filename().string() + ".bin",
                                    std::filesystem::path(file.prefix()).filename().string() + ".idx"};
  for (const auto& set : sets_of(truth, file.sequences())) {
    SCOPED_TRACE(set.name);
    const auto& expected = truth["splits"][set.name];
    if (expected.is_null()) {  // an empty range: the peer makes no data set
      EXPECT_LE(set.range.count(), 0);
      continue;
    }
    EXPECT_EQ(set.range, (SequenceRange{expected["documents_begin_end"][0], expected["documents_begin_end"][1]}));
    const IndexRequest request{&file, "", set.name, set.range, set.wanted, truth["seq_length"], truth["seed"]};
    store_index(request);
    EXPECT_EQ(why_not_cached(request), std::nullopt);
    const CacheFiles files = cache_files(request);
    for (const auto& [array, path] : {std::pair{"doc_idx", files.document}, std::pair{"sample_idx", files.sample},
                                      std::pair{"shuffle_idx", files.shuffle}}) {
      EXPECT_EQ(read_file(path),
                read_file(data_fixture(fixture + expected["arrays"][array]["file"].get<std::string>())))
          << array;
      names.push_back(std::filesystem::path(path).filename().string());
    }
    const IndexArrays arrays = load_index(request);
    EXPECT_EQ(arrays.plan().tokens_per_epoch, expected["tokens_per_epoch"].get<std::int64_t>());
    EXPECT_EQ(arrays.plan().epochs, expected["num_epochs"].get<std::int64_t>());
    EXPECT_EQ(arrays.plan().separate_last_epoch, expected["separate_last_epoch"].get<bool>());
    EXPECT_EQ(arrays.samples(), expected["num_samples_built"].get<std::int64_t>());
    expect_samples(SampleReader(file, arrays, 0), expected);
  }
  // Names as the peer gives them, our check files apart, and no temporary file left.
  for (const auto& name : truth["cache_files"]) {
    EXPECT_NE(std::find(names.begin(), names.end(), name.get<std::string>()), names.end()) << name;
  }
  std::vector<std::string> found = folder.names();
  std::erase_if(found, [](const std::string& name) { return name.ends_with(".check"); });
  std::sort(names.begin(), names.end());
  EXPECT_EQ(found, names);
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& item : read_json(data_fixture("gpt_bigscience/manifest.json"))) {
    names.push_back(item["case"].get<std::string>());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SamplesParity, ::testing::ValuesIn(case_names()),
                         [](const auto& param_info) { return param_info.param; });

struct Built {
  EpochPlan plan;
  std::vector<std::int32_t> documents;
  std::vector<std::int32_t> rows;
  std::vector<std::uint32_t> shuffle;
};

Built build(const std::vector<std::int32_t>& sizes, std::int64_t wanted, std::int64_t seq_length, std::uint32_t seed) {
  Built built{};
  std::int64_t tokens = 0;
  for (const auto size : sizes) {
    tokens += size;
  }
  const auto count = static_cast<std::int64_t>(sizes.size());
  built.plan = plan_epochs(tokens, wanted, seq_length);
  NumpyRandom random(seed);
  built.documents = build_document_index(built.plan, {0, count}, random);
  built.rows = std::get<0>(build_sample_index(built.plan, built.documents,
                                              reinterpret_cast<const std::byte*>(sizes.data()), count, "sizes", 32));
  built.shuffle = std::get<0>(build_shuffle_index(built.plan, random));
  return built;
}

void expect_hashes(const Built& built, const nlohmann::json& truth) {
  EXPECT_EQ(built.plan.tokens_per_epoch, truth["tokens_per_epoch"].get<std::int64_t>());
  EXPECT_EQ(built.plan.epochs, truth["num_epochs"].get<std::int64_t>());
  EXPECT_EQ(built.plan.separate_last_epoch, truth["separate_last_epoch"].get<bool>());
  const auto& arrays = truth["arrays"];
  const bool core = arrays.contains("document_index");  // Megatron-LM core's names for the same arrays
  const auto hash = [&](const char* ours, const char* theirs) {
    return arrays[core ? theirs : ours]["sha256"].get<std::string>();
  };
  EXPECT_EQ(sha256_of<std::int32_t>(built.documents), hash("doc_idx", "document_index"));
  EXPECT_EQ(sha256_of<std::int32_t>(built.rows), hash("sample_idx", "sample_index"));
  EXPECT_EQ(sha256_of<std::uint32_t>(built.shuffle), hash("shuffle_idx", "shuffle_index"));
}

TEST(SamplesParityHashes, FiftyThousandDocuments) {
  const auto truth = read_json(data_fixture("gpt_bigscience/digest_large/case.json"));
  std::string why;
  const auto array = NpyArray::open(data_fixture("gpt_bigscience/digest_large/sizes.npy"), why);
  ASSERT_TRUE(array) << why;
  ASSERT_EQ(array->descr(), "<i4");
  const auto* begin = reinterpret_cast<const std::int32_t*>(array->data());
  const std::vector<std::int32_t> sizes(begin, begin + array->elements());
  ASSERT_EQ(truth["runs"].size(), 3U);
  for (const auto& run : truth["runs"]) {
    expect_hashes(build(sizes, run["num_samples"], run["seq_length"], run["seed"].get<std::uint32_t>()), run);
  }
}

TEST(SamplesParityHashes, TwoMillionDocumentsFiveEpochs) {
  const auto truth = read_json(data_fixture("gpt_bigscience/digest_recipe/case.json"));
  testing_support::NumpyNormal normal(truth["size_seed"].get<std::uint32_t>());
  std::vector<std::int32_t> sizes(truth["n"].get<std::size_t>());
  for (auto& size : sizes) {
    const double drawn = std::exp(truth["mean"].get<double>() + truth["sigma"].get<double>() * normal.next());
    size = static_cast<std::int32_t>(std::min(drawn, 1e6));
  }
  ASSERT_EQ(std::vector<std::int32_t>(sizes.begin(), sizes.begin() + 8), as_vector<std::int32_t>(truth["first_8"]));
  ASSERT_EQ(sha256_of<std::int32_t>(sizes), truth["sizes_sha256"].get<std::string>());
  expect_hashes(build(sizes, truth["num_samples"], truth["seq_length"], truth["index_seed"].get<std::uint32_t>()),
                truth);
}

TEST(SamplesParityHashes, BuildsWhereBigscienceStops) {
  for (const std::string name : {"bs_fail_exact", "bs_fail_short"}) {
    SCOPED_TRACE(name);
    const auto truth = read_json(data_fixture("gpt_megatron_core/" + name + "/case.json"));
    const auto file = IndexedFile::open(data_fixture(truth["corpus"].get<std::string>()));
    std::vector<std::int32_t> sizes;
    for (std::int64_t i = 0; i < file.sequences(); ++i) {
      sizes.push_back(file.size(i));
    }
    expect_hashes(build(sizes, truth["num_samples"][0], truth["seq_length"], truth["seed"].get<std::uint32_t>()),
                  truth["splits"]["train"]);
  }
}

}  // namespace
}  // namespace espalier::data_indexed
