#include "interop/huggingface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "espalier/error.hpp"
#include "model/layout.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "transformer.";

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw IoError(path.string(), "cannot open", errno);
  Json json;
  try {
    json = Json::parse(file);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: {}", path.string(), error.what()));
  }
  if (!json.is_object()) throw IoError(path.string() + ": is no JSON object");
  return json;
}

/// Reads values of config.json under any of the names transformers has used.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  std::int64_t size(std::initializer_list<const char*> names) const {
    const Json* value = find(names);
    if (value == nullptr) throw IoError(fmt::format("{}: has no \"{}\"", path_, *names.begin()));
    if (!value->is_number_integer() || value->get<std::int64_t>() <= 0) {
      throw IoError(fmt::format("{}: {} is {}, expected a whole number above 0", path_, *names.begin(), value->dump()));
    }
    return value->get<std::int64_t>();
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

 private:
  const Json& json_;
  std::string path_;
};

std::string_view without_prefix(std::string_view name) {
  return name.substr(0, kPrefix.size()) == kPrefix ? name.substr(kPrefix.size()) : name;
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const std::filesystem::path& folder) : folder_(folder) {
  read_config();
  open_files();
}

void HuggingFaceFolder::read_config() {
  const std::filesystem::path path = folder_ / "config.json";
  const Json json = read_json(path);
  const ConfigReader config(json, path.string());
  const Json* type = config.find({"model_type"});
  if (type == nullptr || *type != "bloom") {
    throw IoError(fmt::format("{}: model_type is {}, expected \"bloom\": only BLOOM models can be read", path.string(),
                              type == nullptr ? "missing" : type->dump()));
  }
  if (config.flag("apply_residual_connection_post_layernorm", false)) {
    throw IoError(path.string() +
                  ": apply_residual_connection_post_layernorm is true: this variant of BLOOM is not computed here");
  }
  shape_.layers = config.size({"n_layer", "num_hidden_layers"});
  shape_.hidden = config.size({"hidden_size", "n_embed"});
  shape_.heads = config.size({"n_head", "num_attention_heads"});
  shape_.ffn = 4 * shape_.hidden;
  shape_.vocab = config.size({"vocab_size"});
  shape_.tokenizer_vocab = shape_.vocab;
  shape_.seq_length = static_cast<std::int64_t>(config.number("seq_length", 0));
  shape_.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  shape_.attention_dropout = config.number("attention_dropout", 0);
  shape_.hidden_dropout = config.number("hidden_dropout", 0);
  shape_.tied_head = config.flag("tie_word_embeddings", true);
  if (shape_.hidden % shape_.heads != 0) {
    throw IoError(
        fmt::format("{}: hidden_size {} is no multiple of n_head {}", path.string(), shape_.hidden, shape_.heads));
  }
}

void HuggingFaceFolder::open_files() {
  const std::filesystem::path single = folder_ / "model.safetensors";
  const std::filesystem::path index = folder_ / "model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    files_.emplace_back(single);
  } else if (std::filesystem::exists(index)) {
    open_shards(index);
  } else {
    throw IoError(
        fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json (weights in .bin files "
                    "must be converted to safetensors first)",
                    folder_.string()));
  }
}

void HuggingFaceFolder::open_shards(const std::filesystem::path& index) {
  const Json json = read_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) throw IoError(index.string() + ": has no weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      throw IoError(
          fmt::format("{}: weight_map.{} is {}, expected a file of this folder", index.string(), tensor, file.dump()));
    }
    names.insert(name);
  }
  for (const std::string& name : names) files_.emplace_back(folder_ / name);
  for (const auto& [tensor, file] : map->items()) {
    const auto name = file.get<std::string>();
    const auto at =
        std::find_if(files_.begin(), files_.end(), [&](const auto& f) { return f.path().filename() == name; });
    if (at->find(tensor) == nullptr) {
      throw IoError(fmt::format("{}: the index places tensor \"{}\" in {}, which does not have it", index.string(),
                                tensor, name));
    }
  }
}

const FileTensor* HuggingFaceFolder::find(std::string_view parameter) const {
  const std::string prefixed = std::string(kPrefix) + std::string(parameter);
  for (const SafetensorsFile& file : files_) {
    if (const FileTensor* tensor = file.find(prefixed)) return tensor;
    if (const FileTensor* tensor = file.find(parameter)) return tensor;
  }
  return nullptr;
}

const FileTensor& HuggingFaceFolder::at(std::string_view parameter) const {
  if (const FileTensor* tensor = find(parameter)) return *tensor;
  throw IoError(
      fmt::format("{}: has no tensor \"{}\" (with or without \"{}\" in front)", folder_.string(), parameter, kPrefix));
}

void HuggingFaceFolder::check(const ParameterList& parameters) const {
  for (const Parameter& parameter : parameters.all()) {
    const FileTensor& tensor = at(parameter.name);
    const auto dims = parameter.shape.dims();
    if (!std::equal(dims.begin(), dims.end(), tensor.shape.begin(), tensor.shape.end())) {
      throw IoError(fmt::format("{}: tensor \"{}\" has shape {}, the model needs {}", folder_.string(), tensor.name,
                                tensor.shape_text(), to_string(parameter.shape)));
    }
    if (tensor.dtype != DType::f32 && tensor.dtype != DType::bf16 && tensor.dtype != DType::f16) {
      throw IoError(fmt::format("{}: tensor \"{}\" has type {}, expected F32, BF16 or F16", folder_.string(),
                                tensor.name, tensor.type));
    }
  }
  for (const SafetensorsFile& file : files_) {
    for (const FileTensor& tensor : file.tensors()) {
      // A tied head may be stored beside the embedding; it is the embedding.
      if (tensor.name == "lm_head.weight" || parameters.find(without_prefix(tensor.name)) != nullptr) continue;
      throw IoError(
          fmt::format("{}: tensor \"{}\" is no parameter of a BLOOM of this shape", file.path().string(), tensor.name));
    }
  }
}

void load_weights(const HuggingFaceFolder& folder, const ParameterList& list,
                  std::span<const LocalParameter> parameters, DataParallel& data, Backend& backend) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 18;  // elements converted at a time
  folder.check(list);
  Device& device = backend.device();
  Stream& stream = device.lane(Lane::compute);
  std::vector<float> block(static_cast<std::size_t>(kBlock));
  for (const StatePiece& piece : data.state()) {
    if (piece.state != "master") continue;
    const LocalParameter& local = parameters[static_cast<std::size_t>(piece.parameter)];
    const FileTensor& tensor = folder.at(local.parameter.name);
    for_each_run(local, piece, [&](const Run& run) {
      for (std::int64_t done = 0; done < run.length; done += kBlock) {
        const std::int64_t n = std::min(kBlock, run.length - done);
        const std::int64_t begin = run.local - piece.begin + done;
        const View target = piece.data.flat_range(begin, begin + n);
        if (run.logical < 0) {
          device.fill_zero(target, stream);
          continue;
        }
        read_f32(tensor, run.logical + done, std::span(block).first(static_cast<std::size_t>(n)));
        device.copy(View::vector(block.data(), n, DType::f32), target, stream);
        device.wait(stream);  // the block is filled again
      }
    });
  }
  data.refresh(stream);
  device.wait(stream);
}

}  // namespace espalier::app
