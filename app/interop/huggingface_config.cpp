#include "interop/huggingface_config.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

/// Reads values of config.json under any of the names transformers has used.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  std::int64_t size(std::initializer_list<const char*> names) const {
    const Json* value = find(names);
    if (value == nullptr) throw IoError(fmt::format("{}: has no \"{}\"", path_, *names.begin()));
    return positive(*names.begin(), *value);
  }
  std::int64_t size(const char* name, std::int64_t otherwise) const {
    const Json* value = find({name});
    return value == nullptr ? otherwise : positive(name, *value);
  }
  double number(const char* name, double otherwise) const {
    const Json* value = find({name});
    if (value == nullptr) return otherwise;
    if (!value->is_number()) throw IoError(fmt::format("{}: {} is {}, expected a number", path_, name, value->dump()));
    return value->get<double>();
  }
  bool flag(const char* name, bool otherwise) const {
    const Json* value = find({name});
    if (value == nullptr) return otherwise;
    if (!value->is_boolean())
      throw IoError(fmt::format("{}: {} is {}, expected true or false", path_, name, value->dump()));
    return value->get<bool>();
  }
  const Json* find(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto at = json_.find(name);
      if (at != json_.end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }
  /// A switch of the model class that changes what is computed must have the value we compute.
  void require(const char* name, bool computed) const {
    if (flag(name, computed) == computed) return;
    throw IoError(fmt::format("{}: {} is {}: this variant is not computed here", path_, name, !computed));
  }

 private:
  std::int64_t positive(const char* name, const Json& value) const {
    if (!value.is_number_integer() || value.get<std::int64_t>() <= 0 || value.get<std::int64_t>() > kMost) {
      throw IoError(fmt::format("{}: {} is {}, expected a whole number above 0", path_, name, value.dump()));
    }
    return value.get<std::int64_t>();
  }

  static constexpr std::int64_t kMost = 1'000'000'000;  // so that products of two fit into 64 bits
  const Json& json_;
  std::string path_;
};

ModelShape bloom_shape(const ConfigReader& config) {
  config.require("apply_residual_connection_post_layernorm", false);
  ModelShape shape;
  shape.layers = config.size({"n_layer", "num_hidden_layers"});
  shape.hidden = config.size({"hidden_size", "n_embed"});
  shape.heads = config.size({"n_head", "num_attention_heads"});
  shape.ffn = 4 * shape.hidden;
  shape.seq_length = config.size("seq_length", 0);
  shape.attention_dropout = config.number("attention_dropout", 0);
  shape.hidden_dropout = config.number("hidden_dropout", 0);
  return shape;
}

ModelShape gpt2_shape(const ConfigReader& config, const std::string& path) {
  config.require("scale_attn_weights", true);
  config.require("scale_attn_by_inverse_layer_idx", false);
  config.require("add_cross_attention", false);
  if (const Json* activation = config.find({"activation_function"});
      activation != nullptr && *activation != "gelu_new" && *activation != "gelu_pytorch_tanh") {
    throw IoError(
        fmt::format("{}: activation_function is {}: only the tanh form of GELU (\"gelu_new\") is computed here", path,
                    activation->dump()));
  }
  ModelShape shape;
  shape.layers = config.size({"n_layer"});
  shape.hidden = config.size({"n_embd"});
  shape.heads = config.size({"n_head"});
  shape.ffn = config.size("n_inner", 4 * shape.hidden);
  shape.positions = config.size({"n_positions"});
  shape.seq_length = shape.positions;
  shape.embedding_norm = false;
  shape.attention_dropout = config.number("attn_pdrop", 0.1);
  shape.hidden_dropout = config.number("resid_pdrop", 0.1);
  return shape;
}

/// What nobody knows is said to be none: the class's own default is an id of another tokenizer.
void put_id(Json& json, const char* name, std::int32_t id) {
  if (id >= 0) {
    json[name] = id;
  } else if (!json.contains(name)) {
    json[name] = nullptr;
  }
}

/// Text and value.
std::pair<std::string, Json> read_object(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError(path.string(), "cannot open", errno);
  std::string text(std::istreambuf_iterator<char>(file), {});
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: {}", path.string(), error.what()));
  }
  if (!json.is_object()) throw IoError(path.string() + ": is no JSON object");
  return {std::move(text), std::move(json)};
}

}  // namespace

std::string kept_huggingface_config(const std::filesystem::path& checkpoint) {
  std::error_code error;
  const std::filesystem::path path = checkpoint / kKeptConfig;
  return std::filesystem::exists(path, error) ? read_object(path).first : "";
}

HuggingFaceConfig read_huggingface_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  HuggingFaceConfig result;
  Json json;
  std::tie(result.text, json) = read_object(path);
  const ConfigReader config(json, path.string());
  const Json* type = config.find({"model_type"});
  if (type == nullptr || (*type != "bloom" && *type != "gpt2")) {
    throw IoError(fmt::format("{}: model_type is {}, expected \"bloom\" or \"gpt2\": other models cannot be read",
                              path.string(), type == nullptr ? "missing" : type->dump()));
  }
  result.family = *type == "bloom" ? Family::bloom : Family::gpt2;
  ModelShape& shape = result.shape;
  shape = result.family == Family::bloom ? bloom_shape(config) : gpt2_shape(config, path.string());
  shape.vocab = shape.tokenizer_vocab = config.size({"vocab_size"});
  shape.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  shape.tied_head = config.flag("tie_word_embeddings", true);
  if (shape.hidden % shape.heads != 0) {
    throw IoError(
        fmt::format("{}: hidden_size {} is no multiple of n_head {}", path.string(), shape.hidden, shape.heads));
  }
  return result;
}

std::string huggingface_config_text(const ModelShape& shape, std::int64_t vocab, DType dtype, const SpecialIds& ids,
                                    const std::string& original) {
  const Family family = family_of(shape);
  Json json = original.empty() ? Json::object() : Json::parse(original);
  json["model_type"] = name_of(family);
  json["architectures"] = {family == Family::bloom ? "BloomForCausalLM" : "GPT2LMHeadModel"};
  json["vocab_size"] = vocab;
  json["n_layer"] = shape.layers;
  json["n_head"] = shape.heads;
  json["layer_norm_epsilon"] = shape.norm_eps;
  json["tie_word_embeddings"] = shape.tied_head;
  json["use_cache"] = true;
  if (family == Family::bloom) {
    json["hidden_size"] = shape.hidden;
    json["attention_dropout"] = shape.attention_dropout;
    json["hidden_dropout"] = shape.hidden_dropout;
    json["apply_residual_connection_post_layernorm"] = false;
    if (shape.seq_length > 0) json["seq_length"] = shape.seq_length;
  } else {
    json["n_embd"] = shape.hidden;
    json["n_positions"] = shape.positions;
    json["n_inner"] = shape.ffn;
    json["activation_function"] = "gelu_new";
    json["attn_pdrop"] = shape.attention_dropout;
    json["resid_pdrop"] = json["embd_pdrop"] = shape.hidden_dropout;
  }
  // The name every version of transformers reads; one under the newer name would win over it.
  json.erase("dtype");
  json["torch_dtype"] = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
  put_id(json, "bos_token_id", ids.begin);
  put_id(json, "eos_token_id", ids.end);
  put_id(json, "pad_token_id", ids.padding);
  return json.dump(2) + "\n";
}

}  // namespace espalier::app
