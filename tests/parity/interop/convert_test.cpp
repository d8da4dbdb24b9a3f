// The command: checkpoints of any layout to Hugging Face and back, to the bit; bounded memory; mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "checkpoint/reader.hpp"
#include "cli/process.hpp"
#include "interop/safetensors.hpp"
#include "model/parameters.hpp"
#include "support/trainer_job.hpp"
#include "text/tokenizers/open.hpp"
#include "unit/text/files.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;
using app::CheckpointReader;
using app::StoredTensor;
using app::text_test::Folder;
using cli_test::Outcome;
using cli_test::quoted;
using ::testing::HasSubstr;

const fs::path kModels = fs::path(ESPALIER_FIXTURES_DIR) / "model";

Outcome convert(const std::string& from, const std::string& to, const std::string& more = "") {
  return cli_test::run(std::string(TRAINER_EXE) + " convert " + quoted(from) + " " + quoted(to) + " " + more);
}

void expect_same_weights(const fs::path& a, const fs::path& b) {
  const CheckpointReader first(a), second(b);
  std::size_t compared = 0;
  for (const StoredTensor& tensor : first.manifest().tensors) {
    if (tensor.state != "master") continue;
    const StoredTensor* other = second.manifest().find(tensor.parameter, "master");
    ASSERT_NE(other, nullptr) << tensor.parameter;
    EXPECT_EQ(first.read_tensor(tensor), second.read_tensor(*other)) << tensor.parameter;
    ++compared;
  }
  EXPECT_EQ(compared, second.manifest().tensors.size());
}

struct Layout {
  const char* name;
  int ranks;
  std::vector<std::pair<const char*, const char*>> keys;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class AnyLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(AnyLayout, ComesBackToTheBit) {
  const Layout& layout = GetParam();
  TrainerJob job(std::string("convert_") + layout.name);
  job.set("train.train_iters", "3");
  job.set("checkpoint.save_interval", "3");
  for (const auto& [key, value] : layout.keys) job.set(key, value);
  job.world(layout.ranks);
  job.expect(0);
  const Folder work;
  const Outcome there = convert(job.run_dir(), work.file("hf"), "--rows logical --shard-size 20000");
  ASSERT_EQ(there.code, 0) << there.text;
  const Outcome back = convert(work.file("hf"), work.file("back"));
  ASSERT_EQ(back.code, 0) << back.text;
  expect_same_weights(job.checkpoint(3), work.file("back/step_0"));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AnyLayout,
    ::testing::Values(
        Layout{"zero1", 2, {{"parallel.data.plugin", "\"parallel_zero\""}, {"parallel.data.stage", "1"}}},
        Layout{"zero3", 2, {{"parallel.data.plugin", "\"parallel_zero\""}, {"parallel.data.stage", "3"}}},
        Layout{"tensor",
               2,
               {{"parallel.data.plugin", "\"parallel_zero\""},
                {"parallel.tensor.plugin", "\"parallel_tensor\""},
                {"parallel.tensor.size", "2"}}},
        Layout{"pipeline",
               2,
               {{"parallel.data.plugin", "\"parallel_zero\""},
                {"parallel.pipeline.plugin", "\"parallel_pipeline\""},
                {"parallel.pipeline.size", "2"}}},
        Layout{"gpt2_untied",
               1,
               {{"model.position", "\"learned\""}, {"model.embedding_norm", "false"}, {"model.tied_head", "false"}}}),
    [](const auto& layout) { return std::string(layout.param.name); });

TEST(Convert, SixteenBitsAndShardsOfTheFixture) {
  const Folder work;
  ASSERT_EQ(convert(kModels / "tiny_a/hf_bf16_sharded", work.file("checkpoints")).code, 0);
  const Outcome outcome = convert(work.file("checkpoints"), work.file("hf"), "--dtype bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("29 tensors, 233.2 kB of bf16 in 1 file"));
  const app::SafetensorsFile written(fs::path(work.file("hf")) / "model.safetensors");
  std::size_t compared = 0;
  for (const char* shard : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    const app::SafetensorsFile original(kModels / "tiny_a/hf_bf16_sharded" / shard);
    for (const app::FileTensor& tensor : original.tensors()) {
      const app::FileTensor& same = written.at(tensor.name);
      ASSERT_EQ(same.bytes, tensor.bytes);
      EXPECT_EQ(std::memcmp(same.data, tensor.data, tensor.bytes), 0) << tensor.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, written.tensors().size());
}

TEST(Convert, TokenizerFilesTravelAlong) {
  const Folder work;
  fs::copy(kModels / "tiny_a/hf", work.file("hf"));
  for (const char* name : {"vocab.json", "special_tokens_map.json", "training_args.json"}) {
    std::ofstream(fs::path(work.file("hf")) / name) << "{}";
  }
  EXPECT_THAT(convert(work.file("hf"), work.file("checkpoints")).text, HasSubstr("2 tokenizer files"));
  EXPECT_TRUE(fs::exists(work.file("checkpoints/step_0/vocab.json")));
  ASSERT_EQ(convert(work.file("checkpoints"), work.file("back")).code, 0);
  EXPECT_TRUE(fs::exists(work.file("back/special_tokens_map.json")));
  EXPECT_FALSE(fs::exists(work.file("back/training_args.json")));
  EXPECT_THAT(convert(work.file("checkpoints"), work.file("x"), "--tokenizer " + quoted(work.path())).text,
              HasSubstr("has no tokenizer.json"));
}

Json config_of(const std::string& folder) {
  std::ifstream file(fs::path(folder) / "config.json");
  return Json::parse(file);
}

// What a checkpoint has no place for: ids that the program does not use, and keys it does not know.
TEST(Convert, IdsAndOtherKeysOfTheConfigComeBack) {
  const Folder work;
  const std::string hf = kModels / "tiny_a/hf";
  ASSERT_EQ(convert(hf, work.file("ck")).code, 0);
  ASSERT_EQ(convert(work.file("ck"), work.file("back")).code, 0);
  const Json before = config_of(hf), after = config_of(work.file("back"));
  EXPECT_EQ(before["pad_token_id"], 3);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "pretraining_tp"}) {
    EXPECT_EQ(after[key], before[key]) << key;
  }
  // The checkpoint is still one of ours.
  EXPECT_THAT(convert(work.file("ck/step_0"), work.file("again")).text, HasSubstr("29 tensors"));
  // Damaged by hand: said, not ignored.
  std::ofstream(work.file("ck/step_0/huggingface_config.json")) << "[1]";
  const Outcome damaged = convert(work.file("ck"), work.file("third"));
  EXPECT_EQ(damaged.code, 4);
  EXPECT_THAT(damaged.text, HasSubstr("huggingface_config.json: is no JSON object"));
}

std::string greedy(const std::string& checkpoint, const std::string& before = "", const std::string& more = "") {
  return cli_test::run(before + std::string(TRAINER_EXE) + " generate --checkpoint " + quoted(checkpoint) +
                       " --prompt 'h\u00e9' --tokens 12 --greedy --ignore-end " + more + " 2>/dev/null")
      .text;
}

// Bytes as ids become a byte-level BPE without merges, which opens everywhere, and with which the way back can
// generate.
TEST(Convert, TheTokenizerOfBytesGoesAlongAsAFile) {
  TrainerJob job("convert_bytes");
  job.set("train.train_iters", "3").set("data.plugin", "\"synthetic\"");
  job.expect(0);
  const Folder work;
  EXPECT_THAT(convert(job.run_dir(), work.file("hf")).text, HasSubstr("2 tokenizer files"));
  const auto tokenizer = app::open_tokenizer_file(work.file("hf/tokenizer.json"));
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  std::vector<std::int32_t> ids;
  tokenizer->encode("h\u00e9 \n", ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{'h', 0xC3, 0xA9, ' ', '\n'}));
  const Json json = config_of(work.file("hf"));
  EXPECT_EQ(json["eos_token_id"], 256);
  EXPECT_EQ(json["vocab_size"], 258);
  ASSERT_EQ(convert(work.file("hf"), work.file("back")).code, 0);
  const std::string text = greedy(job.run_dir());
  EXPECT_GT(text.size(), 8U);
  EXPECT_EQ(greedy(work.file("back")), text);
  // The folder as it is, without a checkpoint in between; and over two ranks.
  EXPECT_EQ(greedy(work.file("hf")), text);
  EXPECT_EQ(greedy(work.file("hf"), MPIEXEC " -n 2 ",
                   "--set parallel.tensor.plugin=parallel_tensor --set parallel.tensor.size=2"),
            text);
  work.write("held.txt", "h\u00e9 and some more text to be evaluated\n");
  const auto eval = [&](const std::string& from) {
    return cli_test::run(std::string(TRAINER_EXE) + " eval --checkpoint " + quoted(from) + " --data " +
                         quoted(work.file("held.txt")))
        .text;
  };
  const std::string of_folder = eval(work.file("hf")), of_run = eval(job.run_dir());
  EXPECT_THAT(of_folder, HasSubstr("bits per byte (" + work.file("hf") + ")"));
  EXPECT_EQ(of_folder.substr(0, of_folder.rfind('(')), of_run.substr(0, of_run.rfind('(')));
}

// Random tokens under the name of a validation set would be no answer.
TEST(Convert, WhatComesFromElsewhereHasNoValidationSets) {
  TrainerJob job("convert_sets");
  job.set("train.train_iters", "1").set("data.plugin", "\"synthetic\"");
  job.expect(0);
  const Folder work;
  ASSERT_EQ(convert(job.run_dir(), work.file("hf")).code, 0);
  ASSERT_EQ(convert(work.file("hf"), work.file("ck")).code, 0);
  for (const char* from : {"hf", "ck"}) {
    const Outcome outcome = cli_test::run(std::string(TRAINER_EXE) + " eval --checkpoint " + quoted(work.file(from)));
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("comes from elsewhere and names no validation sets; name files with --data"));
  }
  // One's own run may be on synthetic data.
  EXPECT_EQ(cli_test::run(std::string(TRAINER_EXE) + " eval --checkpoint " + quoted(job.run_dir())).code, 0);
}

TEST(Convert, AFolderWithoutATokenizerNeedsOneNamed) {
  const Folder work;
  const std::string hf = kModels / "tiny_a/hf";
  const auto generate = [&](const std::string& more) {
    return cli_test::run(std::string(TRAINER_EXE) + " generate --checkpoint " + quoted(hf) +
                         " --prompt ab --tokens 3 --greedy " + more);
  };
  const Outcome refused = generate("");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.text, HasSubstr("has no tokenizer.json and no SentencePiece model; name one with --set"));
  // The bytes have 258 ids, the model 256 rows.
  EXPECT_THAT(generate("--set tokenizer.plugin=bytes").text, HasSubstr("256 rows cannot hold the 258 ids"));
  EXPECT_THAT(generate("--set tokenizer.plugin=bytes --set model.layers=3").text, HasSubstr("256 rows cannot hold"));
  EXPECT_THAT(generate("--set tokenizer.plugin=bytes --set model.vocab_size=258").text,
              HasSubstr("has 256 rows for ids, the recipe's tokenizer has 258 ids"));
}

// A model of 20 tensors of 4 MiB: what is read and written must not stay.
TEST(Convert, MemoryIsThatOfOneTensor) {
  const Folder work;
  ModelShape shape;
  fs::create_directories(work.file("hf"));
  constexpr std::int64_t kHidden = 512, kLayers = 12, kVocab = 256;
  std::ofstream(fs::path(work.file("hf")) / "config.json")
      << R"({"model_type":"bloom","hidden_size":512,"n_layer":12,"n_head":8,"vocab_size":256})";
  shape.layers = kLayers;
  shape.hidden = kHidden;
  shape.heads = 8;
  shape.ffn = 4 * kHidden;
  shape.vocab = kVocab;
  const app::ParameterList parameters(shape);
  std::vector<app::TensorHeader> headers;
  for (const Parameter& parameter : parameters.all()) {
    headers.push_back(
        {std::string(parameter.name), DType::f32, {parameter.shape.dims().begin(), parameter.shape.dims().end()}});
  }
  {
    app::SafetensorsWriter writer(fs::path(work.file("hf")) / "model.safetensors", headers);
    const std::vector<float> values(static_cast<std::size_t>(4 * kHidden * kHidden), 0.5f);
    for (const Parameter& parameter : parameters.all()) {
      writer.write(std::as_bytes(std::span(values).first(static_cast<std::size_t>(parameter.shape.elements()))));
    }
    writer.finish();
  }
  const std::int64_t bytes = parameters.count() * 4;
  ASSERT_GT(bytes, std::int64_t{140} << 20);
  ASSERT_EQ(convert(work.file("hf"), work.file("checkpoints")).code, 0);
  ASSERT_EQ(convert(work.file("checkpoints"), work.file("bf16"), "--dtype bf16").code, 0);
  struct rusage usage {};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &usage), 0);
  RecordProperty("peak_kib", static_cast<int>(usage.ru_maxrss));
  EXPECT_LT(usage.ru_maxrss, 64 << 10) << "KiB, of a program that holds one tensor of 4 MiB at a time";
}

TEST(Convert, MistakesAreNamed) {
  const Folder work;
  const std::string hf = kModels / "tiny_a/hf";
  const auto refused = [](const Outcome& outcome, int code, const std::string& text) {
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(text));
    EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 1) << outcome.text;
  };
  refused(convert(work.file("none"), work.file("x")), 4,
          "a Hugging Face folder has a config.json, and there is none either");
  refused(convert(hf + "/model.safetensors", work.file("x")), 4, "is a file; FROM is the folder it lies in");
  refused(convert(hf, work.file("x"), "--dtype bf16"), 2, "--dtype: is for what becomes a Hugging Face model");
  refused(convert(hf, work.file("x"), "--to huggingface --dtype bf61"), 2,
          "--dtype: expected one of keep, f32, bf16, f16");
  refused(convert(hf, work.file("x"), "--to huggingface --shard-size 5TB"), 2, "--shard-size: expected a size");
  refused(convert(hf, work.path(), "--to huggingface --shard-size 1"), 0, "29 files");
  refused(convert(hf, work.path(), "--to huggingface"), 4, "exists already");
  ASSERT_EQ(convert(hf, work.file("ck")).code, 0);
  refused(convert(hf, work.file("ck")), 4, "holds checkpoints already");
  refused(convert(work.file("ck"), work.file("y"), "--to checkpoint"), 2, "FROM is a checkpoint already");
  // Into what is read, under any name: nothing appears there.
  fs::copy(hf, work.file("model"));
  fs::create_directory_symlink(work.file("model"), work.file("link"));
  for (const char* to : {"model", "model/inside", "model/../model/a/b", "link/c"}) {
    refused(convert(work.file("model"), work.file(to)), 2, "lies within what is read, ");
  }
  refused(convert(work.file("ck"), work.file("ck/step_0/hf")), 2, "lies within what is read, ");
  EXPECT_EQ(std::distance(fs::directory_iterator(work.file("model")), fs::directory_iterator()), 2);
  refused(convert(work.file("ck"), work.file("ck/hf")), 0, "29 tensors");
  // A byte of the data is damaged: nothing appears.
  std::fstream data(work.file("ck/step_0/data_00000.bin"), std::ios::in | std::ios::out | std::ios::binary);
  data.seekp(1000);
  data.put('\x7f');
  data.close();
  refused(convert(work.file("ck"), work.file("y")), 4, "are damaged");
  EXPECT_FALSE(fs::exists(work.file("y")));
  EXPECT_FALSE(fs::exists(work.file("y.tmp")));
}

}  // namespace
}  // namespace espalier::testing_support
