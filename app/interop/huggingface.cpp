#include "interop/huggingface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "espalier/error.hpp"
#include "interop/huggingface_reader.hpp"
#include "model/layout.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHead = "lm_head.weight";

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

Json read_json(const fs::path& path) {
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

/// A file of pickled weights in the folder; empty when there is none.
std::string pickled_file(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    for (const char* pickled : {".bin", ".pt", ".pth", ".ckpt", ".pkl"}) {
      if (extension == pickled) return entry.path().filename().string();
    }
  }
  return "";
}

std::string_view position_word(const ModelShape& shape) { return shape.positions > 0 ? "learned" : "alibi"; }

bool is_vocabulary(const Parameter& parameter) {
  return parameter.role == Role::word_embedding || parameter.role == Role::head_weight;
}

}  // namespace

bool is_huggingface_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error);
}

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder)
    : folder_(folder), config_(read_huggingface_config(folder)) {
  open_files();
  collect();
}

void HuggingFaceFolder::open_files() {
  const fs::path single = folder_ / "model.safetensors";
  const fs::path index = folder_ / "model.safetensors.index.json";
  if (fs::exists(single)) {
    files_.emplace_back(single);
  } else if (fs::exists(index)) {
    open_shards(index);
  } else if (const std::string pickled = pickled_file(folder_); !pickled.empty()) {
    throw IoError(
        fmt::format("{}: the weights are pickled ({}), and reading a pickle may run any code in it; save them as "
                    "safetensors first: in Python, AutoModelForCausalLM.from_pretrained(OLD)"
                    ".save_pretrained(NEW, safe_serialization=True)",
                    folder_.string(), pickled));
  } else {
    throw IoError(fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", folder_.string()));
  }
}

void HuggingFaceFolder::open_shards(const fs::path& index) {
  const Json json = read_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) throw IoError(index.string() + ": has no weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name) {
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

void HuggingFaceFolder::collect() {
  for (const SafetensorsFile& file : files_) {
    for (const FileTensor& tensor : file.tensors()) {
      const auto [at, fresh] = tensors_.try_emplace(std::string(without_prefix(tensor.name)), Entry{&tensor, &file});
      if (fresh) continue;
      throw IoError(fmt::format("{}: tensor \"{}\" is also \"{}\" of {}: which one counts?", file.path().string(),
                                tensor.name, at->second.tensor->name, at->second.file->path().filename().string()));
    }
  }
  // Before anybody makes a list of so many parameters.
  if (config_.shape.layers > std::ssize(tensors_)) {
    throw IoError(fmt::format("{}: config.json says {} layers, but the files have {} tensors in all", folder_.string(),
                              config_.shape.layers, tensors_.size()));
  }
}

const FileTensor* HuggingFaceFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.tensor;
}

const FileTensor& HuggingFaceFolder::at(const Parameter& parameter) const {
  const FileLayout layout = file_layout(config_.family, parameter);
  if (const FileTensor* tensor = find(layout.name)) return *tensor;
  throw IoError(fmt::format("{}: has no tensor \"{}\" (with or without \"{}\" in front)", folder_.string(), layout.name,
                            kPrefix));
}

std::int64_t HuggingFaceFolder::rows_of(const Parameter& parameter) const {
  const bool transposed = file_layout(config_.family, parameter).transposed;
  return at(parameter).shape[transposed ? 1 : 0];
}

std::unique_ptr<WeightReader> HuggingFaceFolder::open(const Parameter& parameter) const {
  const FileLayout layout = file_layout(config_.family, parameter);
  static_cast<void>(at(parameter));  // says what is missing
  const Entry& entry = tensors_.find(layout.name)->second;
  return open_file_tensor(*entry.file, *entry.tensor, layout, config_.shape);
}

void HuggingFaceFolder::check(const ParameterList& parameters) const { check(parameters, 0); }

void HuggingFaceFolder::check(const ParameterList& parameters, std::int64_t vocab) const {
  std::set<std::string, std::less<>> known;
  for (const Parameter& parameter : parameters.all()) {
    const FileLayout layout = file_layout(config_.family, parameter);
    known.insert(layout.name);
    const FileTensor& tensor = at(parameter);
    std::vector<std::int64_t> needed = layout.shape;
    const std::vector<std::int64_t>& shape = tensor.shape;
    if (vocab > 0 && is_vocabulary(parameter) && shape.size() == 2 && shape[0] >= vocab && shape[0] < needed[0]) {
      needed[0] = shape[0];
    }
    if (shape != needed) {
      throw IoError(fmt::format("{}: tensor \"{}\" has shape {}, the model needs [{}]", folder_.string(), tensor.name,
                                tensor.shape_text(), fmt::join(needed, ", ")));
    }
    if (tensor.dtype != DType::f32 && tensor.dtype != DType::bf16 && tensor.dtype != DType::f16) {
      throw IoError(fmt::format("{}: tensor \"{}\" has type {}, expected F32, BF16 or F16", folder_.string(),
                                tensor.name, tensor.type));
    }
  }
  for (const auto& [name, entry] : tensors_) {
    if (known.contains(name) || name == kHead || is_buffer(config_.family, name)) continue;
    throw IoError(fmt::format("{}: tensor \"{}\" is no parameter of a {} of this shape", entry.file->path().string(),
                              entry.tensor->name, name_of(config_.family)));
  }
  if (parameters.find(kHead) == nullptr) check_tied_head();
}

void HuggingFaceFolder::require_model(const ModelShape& model, const ParameterList& parameters) const {
  if (const std::string text = model_mismatch(model, shape()); !text.empty()) {
    throw IoError(folder_.string() + ": " + text);
  }
  if (shape().vocab < model.tokenizer_vocab) {
    throw IoError(
        fmt::format("{}: has {} rows for ids, the recipe's tokenizer has {} ids: the model is of another "
                    "tokenizer (tokenizer.file)",
                    folder_.string(), shape().vocab, model.tokenizer_vocab));
  }
  check(parameters, model.tokenizer_vocab);
}

void HuggingFaceFolder::check_tied_head() const {
  const FileTensor* head = find(kHead);
  if (head == nullptr) return;
  const FileTensor* embedding = find(config_.family == Family::bloom ? "word_embeddings.weight" : "wte.weight");
  if (embedding != nullptr && head->type == embedding->type && head->shape == embedding->shape &&
      std::memcmp(head->data, embedding->data, head->bytes) == 0) {
    return;
  }
  throw IoError(
      fmt::format("{}: the head is tied to the embedding (tie_word_embeddings), but \"{}\" differs from it; is "
                  "the model untied?",
                  folder_.string(), head->name));
}

std::string model_mismatch(const ModelShape& model, const ModelShape& files) {
  const auto differs = [](std::string_view key, auto is, auto needed) {
    return is == needed ? std::string() : fmt::format("model.{} is {}, but the weights are for {}", key, is, needed);
  };
  for (std::string text : {differs("heads", model.heads, files.heads), differs("layers", model.layers, files.layers),
                           differs("hidden", model.hidden, files.hidden), differs("ffn", model.ffn, files.ffn),
                           differs("embedding_norm", model.embedding_norm, files.embedding_norm),
                           differs("tied_head", model.tied_head, files.tied_head),
                           differs("layernorm_epsilon", model.norm_eps, files.norm_eps),
                           differs("position", position_word(model), position_word(files))}) {
    if (!text.empty()) return text;
  }
  return "";
}

void load_weights(const WeightSource& source, std::span<const LocalParameter> parameters, DataParallel& data,
                  Backend& backend) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 18;  // elements converted at a time
  Device& device = backend.device();
  Stream& stream = device.lane(Lane::compute);
  std::vector<float> block(static_cast<std::size_t>(kBlock));
  for (const StatePiece& piece : data.state()) {
    if (piece.state != "master") continue;
    const LocalParameter& local = parameters[static_cast<std::size_t>(piece.parameter)];
    const Shape& shape = local.parameter.shape;
    const std::int64_t width = shape.rank() >= 2 ? shape.cols() : 1;
    const std::int64_t known = std::min(source.rows_of(local.parameter) * width, shape.elements());
    const std::unique_ptr<WeightReader> reader = source.open(local.parameter);
    for_each_run(local, piece, [&](const Run& run) {
      for (std::int64_t done = 0; done < run.length; done += kBlock) {
        const std::int64_t n = std::min(kBlock, run.length - done);
        const std::int64_t begin = run.local - piece.begin + done;
        const std::int64_t first = run.logical + done;
        const std::int64_t there = run.logical < 0 ? 0 : std::clamp<std::int64_t>(known - first, 0, n);
        if (there > 0) {
          reader->read(first, std::span(block).first(static_cast<std::size_t>(there)));
          device.copy(View::vector(block.data(), there, DType::f32), piece.data.flat_range(begin, begin + there),
                      stream);
          device.wait(stream);  // the block is filled again
        }
        if (there < n) device.fill_zero(piece.data.flat_range(begin + there, begin + n), stream);
      }
    });
  }
  data.refresh(stream);
  device.wait(stream);
}

}  // namespace espalier::app
