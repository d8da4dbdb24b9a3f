#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::ordered_json;

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    if (name_of(dtype) == name) return dtype;
  }
  throw IoError("unknown dtype \"" + name + "\"");
}

Json shape_json(const Shape& shape) { return std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end()); }
Shape shape_from(const Json& json) {
  const auto dims = json.get<std::vector<std::int64_t>>();
  if (dims.size() > Shape::kMaxRank) throw IoError("a shape of " + std::to_string(dims.size()) + " dimensions");
  return Shape(dims);
}

constexpr const char* kWayOut = "; copy the checkpoint again, or name an older one (checkpoint.load)";

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

Json tensor_json(const StoredTensor& tensor) {
  Json slices = Json::array();
  for (const StoredSlice& slice : tensor.slices) {
    slices.push_back({{"file", slice.file},
                      {"offset", slice.offset},
                      {"bytes", slice.bytes},
                      {"xxh3", hex(slice.xxh3)},
                      {"dim", slice.placement.dim},
                      {"range", {slice.placement.begin, slice.placement.end, slice.placement.real_end}},
                      {"local", shape_json(slice.placement.local)},
                      {"elements", {slice.begin, slice.end}}});
  }
  return {{"parameter", tensor.parameter},
          {"state", tensor.state},
          {"shape", shape_json(tensor.shape)},
          {"dtype", name_of(tensor.dtype)},
          {"slices", std::move(slices)}};
}

/// Bytes of a file: what is negative or beyond all files would wrap in the sums below.
std::uint64_t bytes_from(const Json& json) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMost)
    throw IoError("a slice has the offset or length " + json.dump() + kWayOut);
  return json;
}

/// A slice is read by its placement without further questions.
void check_placement(const StoredTensor& tensor, const StoredSlice& slice) {
  const Placement& place = slice.placement;
  const bool split = place.dim >= 0;
  bool good = slice.begin >= 0 && slice.begin <= slice.end && place.dim >= -1 && place.dim < std::max(tensor.shape.rank(), 1) && place.dim <= 1;
  if (split) {
    good = good && place.begin >= 0 && place.begin <= place.real_end && place.real_end <= place.end &&
           place.local.rank() == tensor.shape.rank() && slice.end <= place.local.elements();
    if (good && place.dim == 1) good = place.local[0] == tensor.shape[0] && place.real_end - place.begin <= place.local.cols();
  }
  if (!good) throw IoError(tensor.parameter + " " + tensor.state + ": a slice has a range that its tensor has not" + kWayOut);
}

StoredTensor tensor_from(const Json& json) {
  StoredTensor tensor;
  tensor.parameter = json.at("parameter");
  tensor.state = json.at("state");
  tensor.shape = shape_from(json.at("shape"));
  tensor.dtype = parse_dtype(json.at("dtype"));
  for (const Json& entry : json.at("slices")) {
    StoredSlice slice;
    slice.file = entry.at("file");
    // A manifest must not point out of its own folder.
    if (slice.file.find('/') != std::string::npos || slice.file == "..") throw IoError("file name \"" + slice.file + "\" has a folder");
    slice.offset = bytes_from(entry.at("offset"));
    slice.bytes = bytes_from(entry.at("bytes"));
    slice.xxh3 = std::stoull(entry.at("xxh3").get<std::string>(), nullptr, 16);
    slice.placement.dim = entry.at("dim");
    slice.placement.copies = slice.placement.dim < 0 ? Copies::whole : Copies::split;
    slice.placement.begin = entry.at("range").at(0);
    slice.placement.end = entry.at("range").at(1);
    slice.placement.real_end = entry.at("range").at(2);
    slice.placement.local = shape_from(entry.at("local"));
    slice.begin = entry.at("elements").at(0);
    slice.end = entry.at("elements").at(1);
    check_placement(tensor, slice);
    tensor.slices.push_back(std::move(slice));
  }
  return tensor;
}

Json model_json(const ModelShape& model) {
  return {{"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"ffn", model.ffn},
          {"vocab", model.vocab},
          {"tokenizer_vocab", model.tokenizer_vocab},
          {"seq_length", model.seq_length},
          {"positions", model.positions},
          {"embedding_norm", model.embedding_norm},
          {"tied_head", model.tied_head},
          {"attention_dropout", model.attention_dropout},
          {"hidden_dropout", model.hidden_dropout},
          {"norm_eps", model.norm_eps}};
}

ModelShape model_from(const Json& json) {
  ModelShape model;
  model.layers = json.at("layers");
  model.hidden = json.at("hidden");
  model.heads = json.at("heads");
  model.ffn = json.at("ffn");
  model.vocab = json.at("vocab");
  model.tokenizer_vocab = json.at("tokenizer_vocab");
  model.seq_length = json.at("seq_length");
  model.positions = json.at("positions");
  model.embedding_norm = json.at("embedding_norm");
  model.tied_head = json.at("tied_head");
  model.attention_dropout = json.at("attention_dropout");
  model.hidden_dropout = json.at("hidden_dropout");
  model.norm_eps = json.at("norm_eps");
  return model;
}

Manifest manifest_from(const Json& json) {
  Manifest manifest;
  const int format = json.at("format");
  if (format != Manifest::kFormat) {
    throw IoError(fmt::format("format {}; this trainer reads format {}", format, Manifest::kFormat));
  }
  const Json& train = json.at("train");
  manifest.train = {train.at("step"),          train.at("samples"),   train.at("applied_steps"),
                    train.at("skipped_steps"), train.at("nan_steps"), train.at("consecutive_skipped")};
  manifest.seed = json.at("seed");
  manifest.optimizer = json.at("optimizer");
  for (const auto& [name, value] : json.at("optimizer_scalars").items()) manifest.scalars.emplace_back(name, value);
  manifest.data_fingerprint = json.at("data_fingerprint");
  manifest.tokenizer = json.at("tokenizer");
  manifest.provider = json.at("provider");
  manifest.model = model_from(json.at("model"));
  manifest.grid.tensor = json.at("grid").at("tensor");
  manifest.grid.pipeline = json.at("grid").at("pipeline");
  manifest.grid.data = json.at("grid").at("data");
  manifest.recipe = json.at("recipe");
  for (const Json& tensor : json.at("tensors")) manifest.tensors.push_back(tensor_from(tensor));
  return manifest;
}

}  // namespace

std::string Manifest::to_json() const {
  Json scalar_json = Json::object();
  for (const auto& [name, value] : scalars) scalar_json[name] = value;
  Json tensor_list = Json::array();
  for (const StoredTensor& tensor : tensors) tensor_list.push_back(tensor_json(tensor));
  const Json json = {{"format", kFormat},
                     {"train",
                      {{"step", train.step},
                       {"samples", train.samples},
                       {"applied_steps", train.applied_steps},
                       {"skipped_steps", train.skipped_steps},
                       {"nan_steps", train.nan_steps},
                       {"consecutive_skipped", train.consecutive_skipped}}},
                     {"seed", seed},
                     {"optimizer", optimizer},
                     {"optimizer_scalars", std::move(scalar_json)},
                     {"data_fingerprint", data_fingerprint},
                     {"tokenizer", tokenizer},
                     {"provider", provider},
                     {"model", model_json(model)},
                     {"grid", {{"tensor", grid.tensor}, {"pipeline", grid.pipeline}, {"data", grid.data}}},
                     {"recipe", recipe},
                     {"tensors", std::move(tensor_list)}};
  return json.dump(1) + "\n";
}

Manifest Manifest::from_json(const std::string& text, const std::string& path) {
  try {
    return manifest_from(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw IoError(path + ": not a manifest of a checkpoint: " + error.what() + kWayOut);
  } catch (const std::exception& error) {
    throw IoError(path + ": " + error.what());
  }
}

Manifest Manifest::read(const std::filesystem::path& folder) {
  const auto path = folder / "manifest.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) throw IoError(path.string() + ": cannot be opened; a checkpoint is a folder with a manifest.json");
  std::ostringstream text;
  text << in.rdbuf();
  Manifest manifest = from_json(text.str(), path.string());

  std::map<std::string, std::uint64_t> needed;
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredSlice& slice : tensor.slices) {
      std::uint64_t& bytes = needed[slice.file];
      bytes = std::max(bytes, slice.offset + slice.bytes);
    }
  }
  std::string missing;
  for (const auto& [file, bytes] : needed) {
    std::error_code error;
    const auto found = std::filesystem::file_size(folder / file, error);
    if (error) {
      missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", (folder / file).string(), error.message());
    } else if (found < bytes) {
      missing += fmt::format("{}{}: {} bytes expected, {} found", missing.empty() ? "" : "; ", (folder / file).string(), bytes, found);
    }
  }
  if (!missing.empty()) throw IoError("incomplete checkpoint: " + missing + kWayOut);
  return manifest;
}

const StoredTensor* Manifest::find(std::string_view parameter, std::string_view state) const {
  const auto found = std::ranges::find_if(
      tensors, [&](const StoredTensor& tensor) { return tensor.parameter == parameter && tensor.state == state; });
  return found == tensors.end() ? nullptr : &*found;
}

std::string slices_to_json(const std::vector<StoredTensor>& tensors) {
  Json list = Json::array();
  for (const StoredTensor& tensor : tensors) list.push_back(tensor_json(tensor));
  return list.dump();
}

void append_slices(std::vector<StoredTensor>& all, const std::string& json) {
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (std::size_t i = 0; i < all.size(); ++i) places[{all[i].parameter, all[i].state}] = i;
  for (const Json& entry : Json::parse(json)) {
    StoredTensor tensor = tensor_from(entry);
    const auto [place, fresh] = places.try_emplace({tensor.parameter, tensor.state}, all.size());
    if (fresh) {
      all.push_back(std::move(tensor));
    } else {
      auto& slices = all[place->second].slices;
      std::ranges::move(tensor.slices, std::back_inserter(slices));
    }
  }
}

}  // namespace espalier::app
