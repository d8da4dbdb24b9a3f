// A model from elsewhere to a checkpoint and back: what is written, what is refused, and that nothing is left half
// done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "espalier/error.hpp"
#include "interop/checkpoint_weights.hpp"
#include "interop/checkpoint_writer.hpp"
#include "interop/huggingface.hpp"
#include "interop/huggingface_writer.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using text_test::Folder;

const fs::path kModels = fs::path(ESPALIER_FIXTURES_DIR) / "model";

/// Weights that follow from position and parameter.
class MadeUp final : public WeightSource {
 public:
  explicit MadeUp(ModelShape shape) : shape_(shape) {}
  const ModelShape& shape() const override { return shape_; }
  const fs::path& folder() const override { return folder_; }
  DType dtype_of(const Parameter&) const override { return DType::f32; }
  std::int64_t rows_of(const Parameter& parameter) const override { return parameter.shape[0]; }
  std::unique_ptr<WeightReader> open(const Parameter& parameter) const override {
    return std::make_unique<Reader>(parameter.index, special);
  }
  float special = 0;  ///< element 3 of each tensor, unless 0

 private:
  class Reader final : public WeightReader {
   public:
    Reader(int index, float special) : index_(index), special_(special) {}
    void read(std::int64_t first, std::span<float> dst) override {
      for (std::size_t i = 0; i < dst.size(); ++i) {
        const std::int64_t at = first + static_cast<std::int64_t>(i);
        dst[i] = at == 3 && special_ != 0 ? special_ : static_cast<float>(at + 100'000 * (index_ + 1));
      }
    }

   private:
    int index_;
    float special_;
  };
  ModelShape shape_;
  fs::path folder_ = "made up";
};

ModelShape small(bool gpt2) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 12;
  shape.heads = 3;
  shape.ffn = gpt2 ? 30 : 48;
  shape.vocab = 19;
  shape.tokenizer_vocab = 17;
  shape.seq_length = 8;
  shape.positions = gpt2 ? 8 : 0;
  shape.embedding_norm = !gpt2;
  return shape;
}

constexpr auto kQuiet = [](std::int64_t) {};

HuggingFaceExport export_to(const std::string& folder, const ModelShape& shape) {
  HuggingFaceExport what;
  what.folder = folder;
  what.vocab = shape.vocab;
  what.shard_bytes = 1 << 30;
  return what;
}

std::vector<float> values_of(const WeightSource& source, const Parameter& parameter) {
  std::vector<float> values(
      static_cast<std::size_t>(source.rows_of(parameter) * (parameter.shape.rank() >= 2 ? parameter.shape.cols() : 1)));
  source.open(parameter)->read(0, values);
  return values;
}

void expect_same(const WeightSource& a, const WeightSource& b, const ParameterList& parameters) {
  for (const Parameter& parameter : parameters.all()) {
    EXPECT_EQ(values_of(a, parameter), values_of(b, parameter)) << parameter.name;
  }
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

nlohmann::json json_of(const fs::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

TEST(Export, EveryShapeComesBackToTheBit) {
  for (const bool gpt2 : {false, true}) {
    for (const bool tied : {false, true}) {
      ModelShape shape = small(gpt2);
      shape.tied_head = tied;
      const MadeUp source(shape);
      const ParameterList parameters(shape);
      const Folder work;
      const WrittenModel written = write_huggingface(source, parameters, export_to(work.file("hf"), shape), kQuiet);
      EXPECT_EQ(written.files, 1);
      EXPECT_EQ(written.tensors, parameters.size());
      const HuggingFaceFolder folder(work.file("hf"));
      folder.check(parameters);
      EXPECT_EQ(folder.shape().tied_head, tied);
      EXPECT_EQ(folder.shape().ffn, shape.ffn);
      EXPECT_EQ(folder.shape().positions, shape.positions);
      expect_same(source, folder, parameters);

      CheckpointImport what;
      what.folder = work.file("checkpoints");
      what.shape = folder.shape();
      const WrittenModel kept = write_checkpoint(folder, ParameterList(what.shape), what, kQuiet);
      EXPECT_EQ(kept.bytes, parameters.count() * 4);
      const CheckpointReader reader(work.file("checkpoints/step_0"));
      expect_same(source, CheckpointWeights(reader), parameters);
    }
  }
}

// Where GPT-2 keeps things: [in, out], and all heads' q before all k before all v.
TEST(Export, Gpt2LayoutIsThatOfItsClass) {
  const ModelShape shape = small(true);
  const MadeUp source(shape);
  const ParameterList parameters(shape);
  const Folder work;
  write_huggingface(source, parameters, export_to(work.file("hf"), shape), kQuiet);
  const SafetensorsFile file(fs::path(work.file("hf")) / "model.safetensors");
  const FileTensor& weight = file.at("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{12, 36}));
  // Input 5 of channel 2 of head 1's k: column 12 + 1 · 4 + 2 there, row 1 · 12 + 4 + 2 here.
  float value = 0;
  read_f32(weight, 5 * 36 + 18, std::span(&value, 1));
  const Parameter& parameter = *parameters.find("h.1.self_attention.query_key_value.weight");
  EXPECT_EQ(value, static_cast<float>(18 * 12 + 5 + 100'000 * (parameter.index + 1)));
  EXPECT_EQ(file.at("transformer.h.0.mlp.c_fc.weight").shape, (std::vector<std::int64_t>{12, 30}));
}

TEST(Export, ShardsAreAsFullAsTheyMayBeAndTheIndexNamesAll) {
  const ModelShape shape = small(false);
  const MadeUp source(shape);
  const ParameterList parameters(shape);
  const Folder work;
  HuggingFaceExport what = export_to(work.file("hf"), shape);
  what.shard_bytes = 3000;
  const WrittenModel written = write_huggingface(source, parameters, what, kQuiet);
  EXPECT_GT(written.files, 3);
  const nlohmann::json index = json_of(work.file("hf/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], written.bytes);
  EXPECT_EQ(std::ssize(index["weight_map"]), parameters.size());
  const HuggingFaceFolder folder(work.file("hf"));
  folder.check(parameters);
  expect_same(source, folder, parameters);
}

TEST(Export, TheFixturesSixteenBitsComeBack) {
  const HuggingFaceFolder original(kModels / "tiny_a/hf_bf16_sharded");
  const ParameterList parameters(original.shape());
  const Folder work;
  CheckpointImport kept;
  kept.folder = work.file("checkpoints");
  kept.shape = original.shape();
  write_checkpoint(original, parameters, kept, kQuiet);
  const CheckpointReader reader(work.file("checkpoints/step_0"));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    HuggingFaceExport what = export_to(work.file(std::string(name_of(dtype))), original.shape());
    what.dtype = dtype;
    write_huggingface(CheckpointWeights(reader), parameters, what, kQuiet);
    const HuggingFaceFolder back(what.folder);
    expect_same(original, back, parameters);
    for (const Parameter& parameter : parameters.all()) EXPECT_EQ(back.dtype_of(parameter), dtype);
  }
}

TEST(Export, TheTokenizersRowsAloneAndZerosForWhatWasLeftOut) {
  const ModelShape shape = small(false);
  const MadeUp source(shape);
  const ParameterList parameters(shape);
  const Folder work;
  HuggingFaceExport what = export_to(work.file("hf"), shape);
  what.vocab = 17;
  write_huggingface(source, parameters, what, kQuiet);
  EXPECT_EQ(json_of(work.file("hf/config.json"))["vocab_size"], 17);
  const HuggingFaceFolder folder(work.file("hf"));
  EXPECT_THAT(refusal([&] { folder.check(parameters); }), HasSubstr("has shape [17, 12], the model needs [19, 12]"));
  folder.check(parameters, 17);
  EXPECT_THAT(refusal([&] { folder.check(parameters, 18); }),
              HasSubstr("has shape [17, 12], the model needs [19, 12]"));
  CheckpointImport back;
  back.folder = work.file("checkpoints");
  back.shape = shape;
  write_checkpoint(folder, parameters, back, kQuiet);
  const CheckpointReader reader(work.file("checkpoints/step_0"));
  std::vector<float> expected = values_of(source, parameters[0]);
  std::fill(expected.begin() + 17 * 12, expected.end(), 0.0f);
  EXPECT_EQ(values_of(CheckpointWeights(reader), parameters[0]), expected);
}

// C24: one entry, and the tie told as the safetensors library tells it.
TEST(Export, ATiedHeadIsOneEntryAndMetadata) {
  const ModelShape shape = small(false);
  const Folder work;
  write_huggingface(MadeUp(shape), ParameterList(shape), export_to(work.file("hf"), shape), kQuiet);
  const SafetensorsFile file(fs::path(work.file("hf")) / "model.safetensors");
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  EXPECT_EQ(file.metadata().at("lm_head.weight"), "transformer.word_embeddings.weight");
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(Export, WhatSixteenBitsCannotHoldIsNamed) {
  const ModelShape shape = small(false);
  MadeUp source(shape);
  source.special = 70000.0f;
  const Folder work;
  HuggingFaceExport what = export_to(work.file("hf"), shape);
  what.dtype = DType::f16;
  EXPECT_THAT(refusal([&] { write_huggingface(source, ParameterList(shape), what, kQuiet); }),
              HasSubstr("word_embeddings.weight: holds "));
  EXPECT_FALSE(fs::exists(work.file("hf")));
  EXPECT_FALSE(fs::exists(work.file("hf.tmp")));
}

TEST(Export, AModelOfNoClassIsRefused) {
  ModelShape shape = small(false);
  shape.embedding_norm = false;
  EXPECT_THAT(refusal([&] { family_of(shape); }), HasSubstr("ALiBi (as BLOOM) without a LayerNorm"));
  shape = small(true);
  shape.embedding_norm = true;
  EXPECT_THAT(refusal([&] { family_of(shape); }), HasSubstr("learned positions"));
  shape = small(false);
  shape.ffn = 50;
  EXPECT_THAT(refusal([&] { family_of(shape); }), HasSubstr("4 * hidden"));
}

TEST(Export, NothingIsOverwrittenAndNothingHalfIsLeft) {
  const ModelShape shape = small(false);
  const MadeUp source(shape);
  const ParameterList parameters(shape);
  const Folder work;
  const HuggingFaceExport what = export_to(work.file("hf"), shape);
  // A stop in the middle.
  std::int64_t written = 0;
  const auto stop = [&](std::int64_t bytes) {
    EXPECT_TRUE(fs::exists(work.file("hf.tmp")));
    EXPECT_FALSE(fs::exists(work.file("hf")));
    if ((written += bytes) > 2000) throw IoError("stopped");
  };
  EXPECT_EQ(refusal([&] { write_huggingface(source, parameters, what, stop); }), "stopped");
  EXPECT_TRUE(fs::is_empty(work.path()));
  // What a killed program left.
  fs::create_directories(work.file("hf.tmp"));
  std::ofstream(work.file("hf.tmp/old")) << "old";
  fs::create_directories(work.file("hf"));
  write_huggingface(source, parameters, what, kQuiet);
  EXPECT_FALSE(fs::exists(work.file("hf/old")));
  EXPECT_THAT(refusal([&] { write_huggingface(source, parameters, what, kQuiet); }), HasSubstr("exists already"));

  CheckpointImport kept;
  kept.folder = work.file("checkpoints");
  kept.shape = shape;
  written = 0;
  const auto stop_again = [&](std::int64_t bytes) {
    if ((written += bytes) > 2000) throw IoError("stopped");
  };
  EXPECT_EQ(refusal([&] { write_checkpoint(source, parameters, kept, stop_again); }), "stopped");
  EXPECT_TRUE(fs::is_empty(work.file("checkpoints")));
  write_checkpoint(source, parameters, kept, kQuiet);
  EXPECT_THAT(refusal([&] { write_checkpoint(source, parameters, kept, kQuiet); }),
              HasSubstr("holds checkpoints already"));
}

TEST(Export, OtherKeysOfTheOriginalConfigStay) {
  const std::string original = R"({"model_type":"bloom","eos_token_id":2,"dtype":"float16","slow_but_exact":true})";
  const auto text = huggingface_config_text(small(false), 17, DType::bf16, {}, original);
  const nlohmann::json config = nlohmann::json::parse(text);
  EXPECT_EQ(config["eos_token_id"], 2);
  EXPECT_EQ(config["slow_but_exact"], true);
  EXPECT_FALSE(config.contains("dtype"));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_TRUE(config["bos_token_id"].is_null());
}

}  // namespace
}  // namespace espalier::app
