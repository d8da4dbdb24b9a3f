#include "interop/huggingface_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/store.hpp"
#include "espalier/error.hpp"
#include "interop/new_folder.hpp"
#include "interop/safetensors.hpp"

namespace espalier::app {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 18;  // elements converted at a time

/// One tensor as it will lie in a file.
struct Item {
  const Parameter* parameter = nullptr;
  FileLayout layout;
  std::int64_t bytes = 0;
};

std::vector<Item> items_of(const ParameterList& parameters, Family family, const HuggingFaceExport& what) {
  std::vector<Item> items;
  for (const Parameter& parameter : parameters.all()) {
    Item item{&parameter, file_layout(family, parameter), 0};
    const bool vocabulary = parameter.role == Role::word_embedding || parameter.role == Role::head_weight;
    if (vocabulary) item.layout.shape[0] = what.vocab;
    const std::vector<std::int64_t>& shape = item.layout.shape;
    item.bytes = std::accumulate(shape.begin(), shape.end(), static_cast<std::int64_t>(size_of(what.dtype)),
                                 std::multiplies<>());
    items.push_back(std::move(item));
  }
  return items;
}

/// Files in turn, each as full as it may be, in the order of the model.
std::vector<std::vector<Item>> shards_of(std::vector<Item> items, std::int64_t most) {
  std::vector<std::vector<Item>> shards;
  std::int64_t filled = 0;
  for (Item& item : items) {
    if (shards.empty() || filled + item.bytes > most) {
      shards.emplace_back();
      filled = 0;
    }
    filled += item.bytes;
    shards.back().push_back(std::move(item));
  }
  return shards;
}

std::string file_name(std::size_t shard, std::size_t shards) {
  return shards == 1 ? "model.safetensors" : fmt::format("model-{:05d}-of-{:05d}.safetensors", shard + 1, shards);
}

/// Rounds a block of a tensor and writes it.
class BlockWriter {
 public:
  BlockWriter(SafetensorsWriter& file, DType dtype, FunctionRef<void(std::int64_t)> advanced)
      : file_(file), dtype_(dtype), advanced_(advanced) {}

  void write(std::span<const float> values, const Parameter& parameter) {
    bytes_.resize(values.size() * size_of(dtype_));
    with_float_type(dtype_, [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T rounded = from_float<T>(values[i]);
        if (std::isinf(to_float(rounded)) && !std::isinf(values[i])) overflow(values[i], parameter);
        std::memcpy(bytes_.data() + i * sizeof(T), &rounded, sizeof(T));
      }
    });
    file_.write(bytes_);
    advanced_(static_cast<std::int64_t>(bytes_.size()));
  }

 private:
  [[noreturn]] void overflow(float value, const Parameter& parameter) const {
    throw IoError(fmt::format("{}: holds {}, which {} cannot: it would be written as infinity; write bf16 or f32",
                              parameter.name, value, name_of(dtype_)));
  }

  SafetensorsWriter& file_;
  DType dtype_;
  FunctionRef<void(std::int64_t)> advanced_;
  std::vector<std::byte> bytes_;
};

void write_plain(const Item& item, WeightReader& reader, BlockWriter& out) {
  const std::vector<std::int64_t>& shape = item.layout.shape;
  const std::int64_t elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> block(static_cast<std::size_t>(std::min(kBlock, elements)));
  for (std::int64_t at = 0; at < elements; at += kBlock) {
    const auto part = std::span(block).first(static_cast<std::size_t>(std::min(kBlock, elements - at)));
    reader.read(at, part);
    out.write(part, *item.parameter);
  }
}

/// GPT-2's linear layers: transposed, and q, k and v apart.
void write_moved(const Item& item, const ModelShape& shape, WeightReader& reader, BlockWriter& out) {
  const std::vector<std::int64_t>& stored = item.layout.shape;
  const std::int64_t inputs = item.layout.transposed ? stored[0] : 1;
  const std::int64_t outputs = item.layout.transposed ? stored[1] : stored[0];
  std::vector<float> whole(static_cast<std::size_t>(inputs * outputs));
  reader.read(0, whole);
  const std::int64_t rows = std::clamp<std::int64_t>(kBlock / outputs, 1, inputs);  // of the file, at a time
  std::vector<float> block(static_cast<std::size_t>(rows * outputs));
  for (std::int64_t first = 0; first < inputs; first += rows) {
    const std::int64_t n = std::min(rows, inputs - first);
    for (std::int64_t output = 0; output < outputs; ++output) {
      const std::int64_t place = item.layout.parts_apart ? apart_row(shape, output) : output;
      for (std::int64_t i = 0; i < n; ++i) {
        block[static_cast<std::size_t>(i * outputs + place)] =
            whole[static_cast<std::size_t>(output * inputs + first + i)];
      }
    }
    out.write(std::span(block).first(static_cast<std::size_t>(n * outputs)), *item.parameter);
  }
}

/// Readers expect "format"; a tie is told as save_model of the safetensors library does: left-out name → kept name.
std::map<std::string, std::string> metadata_of(const ModelShape& shape, Family family) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (shape.tied_head) {
    metadata["lm_head.weight"] =
        family == Family::bloom ? "transformer.word_embeddings.weight" : "transformer.wte.weight";
  }
  return metadata;
}

std::string index_text(const std::vector<std::vector<Item>>& shards) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    for (const Item& item : shards[s]) {
      map[item.layout.full_name()] = file_name(s, shards.size());
      bytes += item.bytes;
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

}  // namespace

std::int64_t export_bytes(const ParameterList& parameters, const HuggingFaceExport& what) {
  std::int64_t bytes = 0;
  for (const Item& item : items_of(parameters, Family::bloom, what)) bytes += item.bytes;
  return bytes;
}

WrittenModel write_huggingface(const WeightSource& source, const ParameterList& parameters,
                               const HuggingFaceExport& what, FunctionRef<void(std::int64_t)> advanced) {
  const ModelShape& shape = source.shape();
  const Family family = family_of(shape);
  const std::vector<std::vector<Item>> shards = shards_of(items_of(parameters, family, what), what.shard_bytes);
  NewFolder folder(what.folder,
                   static_cast<std::uint64_t>(export_bytes(parameters, what)) + CheckpointStore::kSpareBytes);
  WrittenModel written;
  written.files = static_cast<std::int64_t>(shards.size());
  for (std::size_t s = 0; s < shards.size(); ++s) {
    std::vector<TensorHeader> headers;
    for (const Item& item : shards[s]) headers.push_back({item.layout.full_name(), what.dtype, item.layout.shape});
    SafetensorsWriter file(folder.temporary() / file_name(s, shards.size()), headers, metadata_of(shape, family));
    BlockWriter blocks(file, what.dtype, advanced);
    for (const Item& item : shards[s]) {
      const std::unique_ptr<WeightReader> reader = source.open(*item.parameter);
      const bool moved = item.layout.transposed || item.layout.parts_apart;
      if (moved) {
        write_moved(item, shape, *reader, blocks);
      } else {
        write_plain(item, *reader, blocks);
      }
      ++written.tensors;
      written.bytes += item.bytes;
    }
    file.finish();
  }
  if (shards.size() > 1) write_synced(folder.temporary() / "model.safetensors.index.json", index_text(shards));
  write_synced(folder.temporary() / "config.json",
               huggingface_config_text(shape, what.vocab, what.dtype, what.ids, what.config));
  for (const std::filesystem::path& file : what.companions) {
    copy_synced(file, folder.temporary() / file.filename());
  }
  for (const auto& [name, content] : what.made) write_synced(folder.temporary() / name, content);
  folder.publish();
  return written;
}

}  // namespace espalier::app
