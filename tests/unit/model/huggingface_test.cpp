#include "interop/huggingface.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A copy of tiny_a that each test may damage.
class HuggingFace : public ::testing::Test {
 protected:
  fs::path folder_ = fs::path(::testing::TempDir()) /
                     ("hf_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));

  void SetUp() override { start("hf"); }
  void TearDown() override { fs::remove_all(folder_); }

  void start(const std::string& name) {
    fs::remove_all(folder_);
    fs::copy(fs::path(ESPALIER_FIXTURES_DIR) / "model/tiny_a" / name, folder_);
  }
  template <class Change>
  void change(const std::string& file, Change&& change) {
    std::ifstream in(folder_ / file);
    nlohmann::json json = nlohmann::json::parse(in);
    change(json);
    in.close();
    std::ofstream(folder_ / file) << json;
  }
  std::string refusal() {
    try {
      const HuggingFaceFolder folder(folder_);
      folder.check(ParameterList(folder.shape()));
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder_.string()));
      return error.what();
    }
    return "accepted";
  }
};

// A list of a hundred million blocks' parameters must not be made before the files say that there are two.
TEST_F(HuggingFace, MoreLayersThanTensorsAreRefusedAtOnce) {
  change("config.json", [](auto& json) { json["n_layer"] = 100'000'000; });
  EXPECT_THAT(refusal(), HasSubstr("config.json says 100000000 layers, but the files have 29 tensors in all"));
}

TEST_F(HuggingFace, ShapeAndWeights) {
  const HuggingFaceFolder folder(folder_);
  EXPECT_EQ(folder.shape().layers, 2);
  EXPECT_EQ(folder.shape().hidden, 64);
  EXPECT_EQ(folder.shape().heads, 4);
  EXPECT_EQ(folder.shape().ffn, 256);
  EXPECT_EQ(folder.shape().vocab, 256);
  EXPECT_TRUE(folder.shape().tied_head);
  const ParameterList list(folder.shape());
  EXPECT_EQ(folder.at(*list.find("h.1.input_layernorm.weight")).elements(), 64);
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(HuggingFace, NamesWithoutPrefixAndShards) {
  // The published checkpoints leave "transformer." out.
  const SafetensorsFile original(folder_ / "model.safetensors");
  std::vector<TensorHeader> tensors;
  for (const FileTensor& tensor : original.tensors()) {
    tensors.push_back({tensor.name.substr(std::string("transformer.").size()), DType::f32, tensor.shape});
  }
  SafetensorsWriter writer(folder_ / "plain.safetensors", tensors);
  for (const FileTensor& tensor : original.tensors()) writer.write({tensor.data, tensor.bytes});
  writer.finish();
  fs::rename(folder_ / "plain.safetensors", folder_ / "model.safetensors");
  EXPECT_EQ(refusal(), "accepted");
  start("hf_bf16_sharded");
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(HuggingFace, WhatIsNotBloomIsRefused) {
  change("config.json", [](auto& config) { config["model_type"] = "llama"; });
  EXPECT_THAT(refusal(), HasSubstr("model_type is \"llama\", expected \"bloom\""));
  change("config.json", [](auto& config) { config.erase("model_type"); });
  EXPECT_THAT(refusal(), HasSubstr("model_type is missing"));
}

TEST_F(HuggingFace, AVariantWeDoNotComputeIsRefused) {
  change("config.json", [](auto& config) { config["apply_residual_connection_post_layernorm"] = true; });
  EXPECT_THAT(refusal(), HasSubstr("apply_residual_connection_post_layernorm"));
}

TEST_F(HuggingFace, ConfigValuesAreChecked) {
  change("config.json", [](auto& config) { config["n_layer"] = 0; });
  EXPECT_THAT(refusal(), HasSubstr("n_layer is 0"));
  change("config.json", [](auto& config) {
    config["n_layer"] = 2;
    config["n_head"] = 5;
  });
  EXPECT_THAT(refusal(), HasSubstr("no multiple of n_head 5"));
  change("config.json", [](auto& config) { config.erase("n_head"); });
  EXPECT_THAT(refusal(), HasSubstr("has no \"n_head\""));
  std::ofstream(folder_ / "config.json") << "{";
  EXPECT_THAT(refusal(), HasSubstr("config.json"));
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(refusal(), HasSubstr("cannot open"));
}

TEST_F(HuggingFace, AWrongShapeNamesBoth) {
  change("config.json", [](auto& config) { config["vocab_size"] = 300; });
  EXPECT_THAT(refusal(), HasSubstr("has shape [256, 64], the model needs [300, 64]"));
}

TEST_F(HuggingFace, MissingAndUnknownTensors) {
  change("config.json", [](auto& config) { config["n_layer"] = 3; });
  EXPECT_THAT(refusal(), HasSubstr("has no tensor \"h.2."));
  change("config.json", [](auto& config) { config["n_layer"] = 1; });
  EXPECT_THAT(refusal(), HasSubstr("\"transformer.h.1."));
}

TEST_F(HuggingFace, NoWeightsAtAll) {
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
}

TEST_F(HuggingFace, PickledWeightsAreRefused) {
  fs::rename(folder_ / "model.safetensors", folder_ / "pytorch_model.bin");
  EXPECT_THAT(refusal(), HasSubstr("the weights are pickled (pytorch_model.bin)"));
  EXPECT_THAT(refusal(), HasSubstr("save_pretrained(NEW, safe_serialization=True)"));
}

/// Adds a tensor, made of another one of the file by a name and a change of its first byte.
void add_tensor(const fs::path& path, const std::string& name, const std::string& like, bool changed) {
  const SafetensorsFile original(path);
  std::vector<TensorHeader> tensors;
  for (const FileTensor& tensor : original.tensors()) tensors.push_back({tensor.name, *tensor.dtype, tensor.shape});
  const FileTensor& copied = original.at(like);
  tensors.push_back({name, *copied.dtype, copied.shape});
  SafetensorsWriter writer(path.string() + ".new", tensors);
  for (const FileTensor& tensor : original.tensors()) writer.write({tensor.data, tensor.bytes});
  std::vector<std::byte> bytes(copied.data, copied.data + copied.bytes);
  if (changed) bytes[0] ^= std::byte{1};
  writer.write(bytes);
  writer.finish();
  fs::rename(path.string() + ".new", path);
}

TEST_F(HuggingFace, AHeadBesideItsEmbeddingMustBeIt) {
  const std::string embedding = "transformer.word_embeddings.weight";
  add_tensor(folder_ / "model.safetensors", "lm_head.weight", embedding, false);
  EXPECT_EQ(refusal(), "accepted");
  start("hf");
  add_tensor(folder_ / "model.safetensors", "lm_head.weight", embedding, true);
  EXPECT_THAT(refusal(), HasSubstr("is the model untied?"));
  change("config.json", [](auto& config) { config["tie_word_embeddings"] = false; });
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(HuggingFace, ATensorUnderTwoNames) {
  add_tensor(folder_ / "model.safetensors", "ln_f.weight", "transformer.ln_f.weight", false);
  EXPECT_THAT(refusal(), HasSubstr("which one counts?"));
}

TEST_F(HuggingFace, AnIndexThatLies) {
  start("hf_bf16_sharded");
  const std::string index = "model.safetensors.index.json";
  std::string moved;
  change(index, [&](auto& json) {
    auto& map = json["weight_map"];
    moved = map.begin().key();
    map[moved] = map.begin().value() == "model-00001-of-00002.safetensors" ? "model-00002-of-00002.safetensors"
                                                                           : "model-00001-of-00002.safetensors";
  });
  EXPECT_THAT(refusal(), HasSubstr("\"" + moved + "\""));
  change(index, [&](auto& json) { json["weight_map"][moved] = "../elsewhere.safetensors"; });
  EXPECT_THAT(refusal(), HasSubstr("expected a file of this folder"));
  fs::remove(folder_ / "model-00001-of-00002.safetensors");
  start("hf_bf16_sharded");
  fs::remove(folder_ / "model-00001-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("model-00001-of-00002.safetensors"));
}

}  // namespace
}  // namespace espalier::app
