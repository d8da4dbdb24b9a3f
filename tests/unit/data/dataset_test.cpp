// The dataset as the trainer meets it: sets, blends, refusals, what it logs.
#include "dataset.hpp"

#include "espalier/error.hpp"
#include "index_writer.hpp"
#include "parity/data/support.hpp"
#include "unit/data/host_double.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() : host_(make_self_communicator("world")) {
    for (const std::string name : {"a", "b", "c", "d"}) {
      paths_[name] = copy_pair("corpora/" + name, folder_);
    }
    host_.change_facts().batch.train_samples = 900;
    host_.change_facts().batch.eval_samples = 60;
    host_.change_facts().batch.eval_runs = 1;
  }

  std::unique_ptr<IndexedDataset> make(const std::vector<Key>& keys) {
    const ConfigTable table = checked_data_table(keys);
    return std::make_unique<IndexedDataset>(ConfigView(table, "data"), host_);
  }
  std::string refusal(const std::vector<Key>& keys) {
    return message_of<Error>([&] { make(keys); });
  }
  std::vector<Key> three_parts(const std::string& split) {
    return {{"train", tables_of({{{"path", paths_["a"]}, {"weight", 0.3}},
                                 {{"path", paths_["b"]}, {"weight", 0.6}},
                                 {{"path", paths_["d"]}, {"weight", 2.1}}})},
            {"split", split}};
  }
  std::vector<std::int32_t> sample(const IndexedDataset& data, int set, std::int64_t index) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.sample_tokens()));
    data.read(set, index, tokens, {});
    return tokens;
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> paths_;
  HostDouble host_;
};

TEST_F(DatasetTest, BlendOfThreeCorporaAsBigscienceReadsIt) {
  const auto truth = read_json(data_fixture("blend_bigscience/end_to_end.json"));
  const auto data = make(three_parts("90,8,2"));
  ASSERT_EQ(data->sets().size(), 3U);
  EXPECT_EQ(data->sample_tokens(), 33);
  const std::string names[] = {"train", "valid"};
  for (int set = 0; set < 2; ++set) {
    SCOPED_TRACE(names[set]);
    const auto& expected = truth["sets"][names[set]];
    EXPECT_EQ(data->sets()[static_cast<std::size_t>(set)].name, names[set]);
    ASSERT_EQ(data->sets()[static_cast<std::size_t>(set)].samples, expected["samples_wanted"].get<std::int64_t>());
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < expected["samples_wanted"].get<std::int64_t>(); ++i) {
      const auto tokens = sample(*data, set, i);
      all.insert(all.end(), tokens.begin(), tokens.end());
      if (expected["samples"].contains(std::to_string(i))) {
        EXPECT_EQ(tokens, as_vector<std::int32_t>(expected["samples"][std::to_string(i)]));
      }
    }
    EXPECT_EQ(sha256_of<std::int64_t>(all), expected["wanted_samples_sha256"].get<std::string>());
  }
  // The requests of the parts are in the names of their cache files.
  for (const std::string name : {"a_train_indexmap_91ns", "b_train_indexmap_181ns", "d_train_indexmap_634ns"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / (name + "_32sl_1234s_doc_idx.npy"))) << name;
  }
  EXPECT_EQ(data->origin(0, 0).source, paths_["d"]);
  EXPECT_THROW(sample(*data, 0, 900), IoError);
  EXPECT_THROW(sample(*data, 0, -1), IoError);
  EXPECT_THROW(sample(*data, 3, 0), IoError);
}

TEST_F(DatasetTest, TheTableSaysWhatWeightsMean) {  // D23
  make(three_parts("90,8,2"));
  const auto rows = host_.logged(paths_["a"] + " ");
  ASSERT_GE(rows.size(), 3U);
  for (const std::string cell : {" 0.3 ", " 0.100000 ", " 270 ", " 91 ", " 868 "}) {
    EXPECT_TRUE(contains(rows[0], cell)) << rows[0];
  }
  EXPECT_EQ(host_.logged("normalised").size(), 3U);
}

TEST_F(DatasetTest, CacheUseIsLoggedOncePerPartWithItsPath) {  // O09
  make(three_parts("90,10,0"));
  EXPECT_EQ(host_.logged("index cache built with").size(), 6U);
  EXPECT_EQ(host_.logged("there is none yet").size(), 6U);
  EXPECT_EQ(host_.logged("built with 32-bit positions in").size(), 6U);  // D15
  host_.clear_log();
  make(three_parts("90,10,0"));
  EXPECT_EQ(host_.logged("index cache used: " + folder_.path()).size(), 6U);
  EXPECT_TRUE(host_.logged("built").size() == 2U) << "only the headings of the two tables";
  host_.clear_log();
  make(three_parts("80,20,0"));  // the same names, other borders
  const auto rebuilt = host_.logged("index cache built with");
  ASSERT_EQ(rebuilt.size(), 6U);  // in any order: they are built side by side
  EXPECT_EQ(host_.logged("now it is \"sequences of the split = 0 to 240\"").size(), 1U);
}

TEST_F(DatasetTest, FingerprintFollowsDataAndOrder) {
  const auto first = make(three_parts("90,8,2"))->fingerprint();
  EXPECT_EQ(first, make(three_parts("90,8,2"))->fingerprint());
  EXPECT_NE(first, make(three_parts("80,18,2"))->fingerprint());
  host_.change_facts().batch.eval_samples = 50;
  EXPECT_EQ(first, make(three_parts("90,8,2"))->fingerprint()) << "validation does not change the training order";
  host_.change_facts().seed = 1235;
  EXPECT_NE(first, make(three_parts("90,8,2"))->fingerprint());
}

TEST_F(DatasetTest, ASplitShorterThanASampleIsNamed) {  // D17
  IndexWriter writer(folder_ / "small", ElementType::uint16);
  for (int k = 0; k < 30; ++k) {
    writer.add_sequence(std::span<const std::int32_t>(std::vector<std::int32_t>(10, k)));
    writer.end_document();
  }
  writer.finish();
  host_.change_facts().model.seq_length = 2048;
  const std::vector<Key> keys = {{"path", folder_ / "small"}, {"split", std::string("949,50,1")}};
  const auto message = refusal(keys);
  EXPECT_TRUE(contains(message, "validation split: 2 documents, 20 tokens, needs 2049")) << message;
  EXPECT_TRUE(contains(message, folder_ / "small")) << message;
  host_.change_facts().batch.eval_runs = 0;  // evaluation off
  const auto data = make(keys);
  ASSERT_EQ(data->sets().size(), 1U);
  EXPECT_EQ(host_.logged("validation split: 2 documents").size(), 1U);
  EXPECT_EQ(host_.logged("test split: 0 documents").size(), 1U);
  EXPECT_EQ(sample(*data, 0, 899).size(), 2049U);  // training repeats its 280 tokens
}

TEST_F(DatasetTest, WeightsMustBeComplete) {  // D26
  const auto missing =
      refusal({{"train", tables_of({{{"path", paths_["a"]}, {"weight", 0.3}}, {{"path", paths_["b"]}}})}});
  EXPECT_TRUE(contains(missing, "recipe.toml:11") && contains(missing, "weight") && contains(missing, paths_["b"]))
      << missing;
  const auto mistyped = refusal({{"train", tables_of({{{"path", paths_["a"]}, {"weight", std::string("0.3x")}},
                                                      {{"path", paths_["b"]}, {"weight", 0.7}}})}});
  EXPECT_TRUE(contains(mistyped, "recipe.toml:10") && contains(mistyped, "weight")) << mistyped;
  const auto zero = refusal(
      {{"train", tables_of({{{"path", paths_["a"]}, {"weight", 0.0}}, {{"path", paths_["b"]}, {"weight", 0.7}}})}});
  EXPECT_TRUE(contains(zero, "leave the entry out")) << zero;
}

TEST_F(DatasetTest, SettingsThatContradictAreRefused) {
  const Key path{"path", paths_["a"]};
  const Key valid{"valid", tables_of({{{"path", paths_["b"]}}})};
  EXPECT_TRUE(contains(refusal({}), "data.train"));
  EXPECT_TRUE(contains(refusal({path, {"train", tables_of({{{"path", paths_["b"]}}})}}), "both given"));
  EXPECT_TRUE(contains(refusal({path, valid, {"split", std::string("90,5,5")}}), "use range instead"));
  // A split nobody wrote.
  EXPECT_TRUE(contains(refusal({{"train", tables_of({{{"path", paths_["a"]}, {"range", std::string("0:0.5")}}})}}),
                       "the default without valid or test sets"));
  EXPECT_TRUE(contains(refusal({path, {"split", std::string("1,2,3,4")}}),
                       "recipe.toml:1:1: data.split: \"1,2,3,4\" has 4 shares"));
  EXPECT_TRUE(contains(refusal({{"train", tables_of({{{"path", paths_["a"]}, {"range", std::string("0:2")}}})}, valid}),
                       "0:2"));
  EXPECT_TRUE(contains(refusal({path, {"valid", tables_of({{{"path", paths_["b"]}, {"name", std::string("train")}}})}}),
                       "already names"));
  EXPECT_TRUE(contains(refusal({path, {"sampling", std::string("megatron")}}), "bigscience"));
  EXPECT_TRUE(contains(refusal({path, {"pad_token", std::int64_t{3}}}), "sampling = \"megatron_core\""));
  EXPECT_TRUE(contains(refusal({{"train", tables_of({})}}), "empty list"));
  EXPECT_TRUE(contains(refusal({{"path", paths_["a"] + ".bin"}}), "ends in .bin"));
  host_.change_facts().seed = std::uint64_t{1} << 32;
  EXPECT_TRUE(contains(refusal({path}), "4294967295"));
}

TEST_F(DatasetTest, ExplicitSetsHaveNamesAndRanges) {
  const auto range = [](const char* text) { return std::string(text); };
  const std::vector<Key> keys = {
      {"train", tables_of({{{"path", paths_["a"]}, {"range", range("0:0.9")}}})},
      {"valid",
       tables_of({{{"name", range("en")}, {"path", paths_["a"]}, {"range", range("0.9:1")}},
                  {{"name", range("mix")}, {"path", paths_["b"]}, {"weight", 1.0}, {"range", range("0:0.5")}},
                  {{"name", range("mix")}, {"path", paths_["b"]}, {"weight", 3.0}, {"range", range("0.5:1")}}})},
      {"test", tables_of({{{"path", paths_["d"]}}})}};
  const auto data = make(keys);
  ASSERT_EQ(data->sets().size(), 4U);
  EXPECT_EQ(data->sets()[1].name, "en");
  EXPECT_EQ(data->sets()[2].name, "mix");
  EXPECT_EQ(data->sets()[2].samples, 60);
  EXPECT_EQ(data->sets()[3].name, "test");
  EXPECT_EQ(data->sets()[3].split, Split::test);
  EXPECT_TRUE(host_.logged(LogLevel::warning).empty());
  // Two ranges of one file in one set have arrays of their own: bigscience would give both the first one's documents.
  host_.clear_log();
  make(keys);
  EXPECT_EQ(host_.logged("index cache used").size(), 5U);
}

TEST_F(DatasetTest, HeldOutTextThatIsTrainedOnIsSaid) {
  make({{"train", tables_of({{{"path", paths_["a"]}, {"range", std::string("0:0.9")}}})},
        {"valid", tables_of({{{"path", paths_["a"]}, {"range", std::string("0.8:1")}}})}});
  const auto warnings = host_.logged(LogLevel::warning);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(contains(warnings[0], "sequences 240 to 270")) << warnings[0];
}

TEST_F(DatasetTest, AWholeSetIsReadOnce) {
  host_.change_facts().batch.eval_samples = 0;
  const auto data = make(three_parts("80,20,0"));
  ASSERT_EQ(data->sets().size(), 2U);
  std::map<std::string, std::int64_t> next;
  for (std::int64_t i = 0; i < data->sets()[1].samples; ++i) {
    const SampleOrigin origin = data->origin(1, i);
    EXPECT_EQ(origin.sample, next[origin.source]++);
    sample(*data, 1, i);
  }
  EXPECT_EQ(next.size(), 3U);
}

TEST_F(DatasetTest, EvaluationThatReadsItsTextSeveralTimesIsSaid) {
  const std::vector<Key> keys = {{"train", tables_of({{{"path", paths_["a"]}, {"range", std::string("0:0.9")}}})},
                                 {"valid", tables_of({{{"path", paths_["a"]}, {"range", std::string("0.9:1")}}})}};
  host_.change_facts().batch.eval_samples = 0;
  const std::int64_t all = make(keys)->sets()[1].samples;
  host_.change_facts().batch.eval_samples = all;
  make(keys);
  EXPECT_TRUE(host_.logged(LogLevel::warning).empty());
  host_.change_facts().batch.eval_samples = 3 * all + 2;
  EXPECT_EQ(make(keys)->sets()[1].samples, 3 * all + 2);
  const auto warnings = host_.logged(LogLevel::warning);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(contains(warnings[0], "(eval.samples) read " + paths_["a"] + " 3.")) << warnings[0];
}

TEST_F(DatasetTest, IdsOfAnotherTokenizerAreRefused) {
  host_.change_facts().model.tokenizer_vocab = 1000;
  const auto data = make({{"path", paths_["b"]}});
  const auto message = message_of<IoError>([&] { sample(*data, 0, 0); });
  EXPECT_TRUE(contains(message, paths_["b"] + ".bin") && contains(message, "0 to 999")) << message;
  host_.change_facts().model.tokenizer_vocab = 250880;
  EXPECT_NO_THROW(sample(*make({{"path", paths_["b"]}}), 0, 0));
}

TEST_F(DatasetTest, FloatsAreNoTokens) {
  EXPECT_TRUE(contains(refusal({{"path", copy_pair("dtype_conflict/megatron_core_float32", folder_)}}), "float32"));
}

TEST_F(DatasetTest, RelativePathsStartAtTheRecipe) {
  host_.change_facts().recipe_dir = folder_.path();
  EXPECT_EQ(make({{"path", std::string("a")}})->origin(0, 0).source, paths_["a"]);
}

}  // namespace
}  // namespace espalier::data_indexed
