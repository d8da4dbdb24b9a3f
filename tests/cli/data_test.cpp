// trainer data …: what a token dataset holds, and what a step of a run reads of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

namespace fs = std::filesystem;
using app::text_test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kData = std::string(ESPALIER_FIXTURES_DIR) + "/data/";

Outcome data(const std::string& rest) { return run(std::string(TRAINER_EXE) + " data " + rest); }

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(DataInspect, SaysWhatAPairHolds) {
  const Outcome text = data("inspect " + kData + "indexed/basic_uint16");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, AllOf(HasSubstr("uint16 (code 8)"), HasSubstr("238"), HasSubstr("330 (.idx), 476 (.bin)")));
  const Outcome json = data("inspect --json " + kData + "indexed/multimodal_uint16");
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.text, AllOf(StartsWith("{\"prefix\": "), HasSubstr("\"modes\": true"), HasSubstr("\"dtype\": \"uint16\"")));
  const Outcome bad = data("inspect " + kData + "bad/bin_cut");
  EXPECT_EQ(bad.code, 4);
  EXPECT_THAT(bad.text, HasSubstr("is too short"));
  EXPECT_EQ(data("inspect").code, 2);
}

TEST(DataMerge, WritesThePeersBytesOrNothing) {
  const Folder folder;
  const std::string merged = folder.file("merged");
  const std::string both = kData + "indexed/basic_uint16 " + kData + "indexed/second_uint16";
  const Outcome outcome = data("merge " + both + " --output " + merged);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (const std::string extension : {".bin", ".idx"}) {
    EXPECT_EQ(bytes_of(merged + extension), bytes_of(kData + "indexed/merge_uint16" + extension));
  }
  const Outcome types = data("merge " + kData + "indexed/basic_uint16 " + kData + "indexed/basic_int32 --output " + folder.file("x"));
  EXPECT_EQ(types.code, 2);
  EXPECT_THAT(types.text, AllOf(HasSubstr("int32"), HasSubstr("uint16")));
  EXPECT_FALSE(fs::exists(folder.file("x.bin")));
  EXPECT_THAT(data("merge " + merged + " --output " + merged).text, HasSubstr("is one of the pairs"));
  const std::string open = kData + "indexed/no_end_document " + kData + "indexed/second_uint16 --output " + folder.file("y");
  EXPECT_THAT(data("merge " + open).text, HasSubstr("never closed"));
  EXPECT_EQ(data("merge --join-open-documents " + open).code, 0);
  EXPECT_EQ(bytes_of(folder.file("y.idx")), bytes_of(kData + "indexed/merge_no_end_document.idx"));
  // Alone, or last, it stays open.
  EXPECT_EQ(data("merge --join-open-documents " + kData + "indexed/no_end_document --output " + folder.file("z")).code, 0);
  for (const std::string extension : {".bin", ".idx"}) {
    EXPECT_EQ(bytes_of(folder.file("z" + extension)), bytes_of(kData + "indexed/no_end_document" + extension));
  }
}

TEST(DataIndices, WritesThePeersArrays) {
  const Folder folder;
  const std::string common = "indices " + kData + "corpora/a --split 90,5,5 --seq-length 64 --seed 42 --out " + folder.file("out");
  const Outcome outcome = data(common + " --samples 1085,163,1");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("train: sequences 0 to "));
  for (const std::string set : {"train", "valid", "test"}) {
    for (const std::string array : {"doc", "sample", "shuffle"}) {
      const std::string name = set + "_" + array + "_idx.npy";
      EXPECT_EQ(bytes_of(folder.file("out/" + name)), bytes_of(kData + "gpt_bigscience/epochs_separate/" + name)) << name;
    }
  }
  EXPECT_THAT(data(common + " --samples 1085,163").text, HasSubstr("is not TRAIN,VALID,TEST"));
  EXPECT_THAT(data(common + " --samples 1,1,1 --no-extra-token").text, HasSubstr("megatron_core"));
  const Outcome core = data("indices " + kData + "corpora/b --split 90,10 --seq-length 32 --seed 4294967295 --samples 1539,50,0 " +
                            "--sampling megatron_core --no-extra-token --out " + folder.file("core"));
  ASSERT_EQ(core.code, 0) << core.text;
  EXPECT_EQ(bytes_of(folder.file("core/train_sample_idx.npy")),
            bytes_of(kData + "gpt_megatron_core/no_extra_token/train_sample_index.npy"));
  EXPECT_THAT(core.text, HasSubstr("test: no sequences"));
}

/// A run on three documents of text.
// The names and descriptions under which Megatron-LM core looks for its cache.
TEST(DataIndices, WritesUnderTheNamesOfCoresCache) {
  const Folder folder;
  const auto truth = nlohmann::json::parse(std::ifstream(kData + "cache/megatron_core.json"));
  const std::string common = "indices " + kData + "corpora/a --split 90,5,5 --samples 50,7,3 --seq-length 64 --seed 1234 ";
  const std::string core = common + "--sampling megatron_core --dataset-path corpora/a ";
  const std::string tokenizer = "--tokenizer-identity '{\"class\": \"FixtureTokenizer\", \"vocab_size\": 250680}' ";
  const Outcome outcome = data(core + tokenizer + "--out " + folder.file("named"));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  ASSERT_EQ(data(core.substr(0, core.find("--dataset-path")) + "--out " + folder.file("plain")).code, 0);
  std::size_t files = 0;
  for (const auto& entry : truth["entries"]) {
    const std::string split = entry["split"], stem = folder.file("named/") + entry["md5"].get<std::string>() + "-GPTDataset-" + split;
    for (const std::string name : entry["files"]) EXPECT_TRUE(fs::exists(folder.file("named/" + name))) << name;
    files += entry["files"].size();
    EXPECT_EQ(bytes_of(stem + "-description.txt"), entry["description"].get<std::string>());
    EXPECT_EQ(bytes_of(stem + "-document_index.npy"), bytes_of(folder.file("plain/" + split + "_doc_idx.npy")));
    EXPECT_EQ(bytes_of(stem + "-shuffle_index.npy"), bytes_of(folder.file("plain/" + split + "_shuffle_idx.npy")));
  }
  EXPECT_EQ(files, 12U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("named")), {}), 12);
  EXPECT_THAT(data(common + tokenizer + "--out " + folder.file("x")).text, HasSubstr("give sampling megatron_core"));
  EXPECT_THAT(data(core + "--out " + folder.file("x")).text, HasSubstr("need tokenizer_identity"));
  EXPECT_THAT(data(core + "--tokenizer-identity 5 --out " + folder.file("x")).text, HasSubstr("is no JSON object"));
}

TEST(DataIndices, ImpossibleRequestsAreSaid) {
  const Folder folder;
  const std::string common = "indices " + kData + "corpora/a --seq-length 64 --seed 1 --out " + folder.file("x");
  const Outcome large = data(common + " --split 1,0,0 --samples 99999999999999,0,0");
  EXPECT_EQ(large.code, 6);
  EXPECT_THAT(large.text, AllOf(HasSubstr("99999999999999 samples ("), HasSubstr("GB of memory")));
  EXPECT_THAT(data(common + " --split= --samples 1,1,1").text, HasSubstr("--split: is empty"));
  EXPECT_THAT(data(common + " --split ' ' --samples 1,1,1").text, HasSubstr("\" \" is empty"));
}

class DataOfARun : public ::testing::Test {
 protected:
  DataOfARun() {
    const std::string text = folder_.write("a.jsonl", "{\"text\":\"first document\"}\n{\"text\":\"the \\\"second\\\" one\\nhere\"}\n{\"text\":\"last of the documents\"}\n");
    const Outcome made = run(std::string(TRAINER_EXE) + " preprocess --input " + text + " --output " + folder_.file("a"));
    EXPECT_EQ(made.code, 0) << made.text;
    folder_.write("recipe.toml", R"(
[run]
dir = "run"
[model]
layers = 2
hidden = 16
heads = 2
vocab_size = 258
seq_length = 8
[train]
train_samples = 24
global_batch_size = 4
micro_batch_size = 2
lr = 1e-2
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "data_indexed"
path = "a"
split = "1,0,0"
)");
  }
  Outcome trainer(const std::string& rest) {
    return run("cd " + quoted(folder_.path().string()) + " && " + TRAINER_EXE + " " + rest);
  }
  Folder folder_;
};

TEST_F(DataOfARun, ShowsDocumentsOffsetsAndText) {
  const Outcome shown = trainer("data show recipe.toml --step 2");
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.text, AllOf(HasSubstr("step 2: samples 4 to 7 of the training order"), HasSubstr("/a, its sample 4"),
                                HasSubstr(", documents "), HasSubstr("sample 7: "), Not(HasSubstr("sample 8: "))));
  // Any layout of ranks reads the same.
  const Outcome other = trainer("data show recipe.toml --step 2 --set train.micro_batch_size=1");
  EXPECT_EQ(shown.text.substr(shown.text.find("step 2")), other.text.substr(other.text.find("step 2")));
  // A sample is 9 tokens, so some piece of the text is there as it was written.
  const Outcome whole = trainer("data show recipe.toml --step 1 --text 0");
  EXPECT_THAT(whole.text, ::testing::AnyOf(HasSubstr("first"), HasSubstr("document"), HasSubstr("\\\"second\\\""), HasSubstr("last")));
  EXPECT_THAT(trainer("data show recipe.toml --step 7").text, HasSubstr("steps 1 to 6, found 7"));
}

TEST_F(DataOfARun, VerifyFindsADamagedArray) {  // D12
  ASSERT_EQ(trainer("data show recipe.toml --step 1").code, 0);  // makes the cache
  const Outcome sound = trainer("data verify a --vocab 258");
  EXPECT_EQ(sound.code, 0);
  EXPECT_THAT(sound.text, AllOf(HasSubstr("shuffle_idx.npy: whole, 1 blocks"), HasSubstr("all ids below 258")));
  EXPECT_THAT(trainer("data verify a --cache-dir nowhere").text, HasSubstr("\"nowhere\" is not a folder"));
  EXPECT_THAT(trainer("data verify a --vocab 100").text, HasSubstr("the vocabulary has ids 0 to 99"));
  fs::path shuffle;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    if (entry.path().string().ends_with("shuffle_idx.npy")) shuffle = entry.path();
  }
  std::string bytes = bytes_of(shuffle.string());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(shuffle, std::ios::binary) << bytes;
  const Outcome damaged = trainer("data verify a");
  EXPECT_EQ(damaged.code, 4);
  EXPECT_THAT(damaged.text, AllOf(HasSubstr("shuffle_idx.npy"), HasSubstr("damaged")));
  const Outcome again = trainer("data show recipe.toml --step 1");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(trainer("data verify a").code, 0);
}

// O07: a split without a share is not there at all, and nothing takes its place.
TEST_F(DataOfARun, NoTestSplitGivesNoTestLine) {
  const Outcome trained = trainer("train recipe.toml --set 'data.split=\"67,33,0\"' --set eval.at_end=true --set eval.samples=1");
  EXPECT_EQ(trained.code, 0) << trained.text;
  EXPECT_THAT(trained.text, AllOf(HasSubstr("valid loss at iteration 6"), Not(HasSubstr("test loss")), Not(HasSubstr("\"test\""))));
  EXPECT_THAT(trained.text, ::testing::ContainsRegex("waited [0-9.]+ s for batches, [0-9.]+ % of the steps; reading them"));
}

TEST_F(DataOfARun, AnEntryThatStandsTwiceIsSaid) {
  std::string recipe = bytes_of(folder_.file("recipe.toml"));
  const std::string once = "path = \"a\"";
  recipe.replace(recipe.find(once), once.size(), "train = [{path = \"a\", weight = 1}, {path = \"./a\", weight = 1}]");
  folder_.write("twice.toml", recipe);
  const Outcome shown = trainer("data show twice.toml --step 1");
  EXPECT_EQ(shown.code, 0) << shown.text;
  EXPECT_THAT(shown.text, ::testing::ContainsRegex("set \"train\" reads sequences 0 to 3 of .*/a twice"));
}

// More samples than the order was planned for: refused, or the same order and a further plan; never another order unsaid.
TEST_F(DataOfARun, AProlongedRunKeepsItsOrder) {
  ASSERT_EQ(trainer("train recipe.toml --set train.exit_interval=4").code, 75);
  const std::string order = trainer("data show recipe.toml --step 6").text;
  const Outcome refused = trainer("train recipe.toml --set train.train_samples=400");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("planned for 24 training samples; planned for 400 it is another one"),
                                  HasSubstr("data.planned_samples")));
  const std::string more = "--set train.train_samples=400 --set data.planned_samples=[24]";
  const Outcome prolonged = trainer("data show recipe.toml --step 6 " + more);
  EXPECT_EQ(prolonged.text.substr(prolonged.text.find("step 6")), order.substr(order.find("step 6")));
  const Outcome resumed = trainer("train recipe.toml --set train.exit_interval=8 " + more);
  EXPECT_EQ(resumed.code, 75) << resumed.text;
  EXPECT_THAT(resumed.text, AllOf(HasSubstr("continuing after step 4"), HasSubstr("a further plan follows it")));
}

}  // namespace
}  // namespace espalier::cli_test
