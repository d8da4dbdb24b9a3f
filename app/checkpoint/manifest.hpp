#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier::app {

/// Where a run stands, besides its tensors.
struct TrainState {
  std::int64_t step = 0;           ///< finished steps, skipped ones included
  std::int64_t samples = 0;        ///< consumed
  std::int64_t applied_steps = 0;  ///< updates made: Adam's t
  std::int64_t skipped_steps = 0;
  std::int64_t nan_steps = 0;
  std::int64_t consecutive_skipped = 0;
  bool operator==(const TrainState&) const = default;
};

/// A contiguous block of one file: elements [begin, end) of the local tensor that a rank held (`placement` says which part of the
/// logical one that was), padding left out. Logical order follows from model/layout.hpp.
struct StoredSlice {
  std::string file;          ///< in the checkpoint's folder
  std::uint64_t offset = 0;  ///< bytes
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;    ///< XXH3-64 of the bytes
  Placement placement;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// One kind of state of one logical parameter.
struct StoredTensor {
  std::string parameter;
  std::string state;  ///< "master", "moment1", …
  Shape shape;        ///< logical
  DType dtype = DType::f32;
  std::vector<StoredSlice> slices;
};

/// manifest.json: everything about a checkpoint but the bytes. docs/checkpoints.md describes the format.
struct Manifest {
  static constexpr int kFormat = 1;

  TrainState train;
  std::uint64_t seed = 0;
  std::string recipe;               ///< effective, TOML
  std::string optimizer;            ///< plugin name
  std::vector<std::pair<std::string, double>> scalars;  ///< the optimizer's own numbers
  std::string data_fingerprint;     ///< hexadecimal; "" without data
  std::string tokenizer;            ///< its fingerprint
  std::string provider;             ///< backend, instruction set and threads: a resume is equal to the bit on the same
  ModelShape model;
  Grid grid;                        ///< that wrote it
  std::vector<StoredTensor> tensors;

  std::string to_json() const;
  /// @param path  for messages.
  /// @throws IoError naming path and field.
  static Manifest from_json(const std::string& text, const std::string& path);
  /// Reads folder/manifest.json and checks that every file it names is there with enough bytes.
  /// @throws IoError naming the file, expected and found bytes.
  static Manifest read(const std::filesystem::path& folder);

  const StoredTensor* find(std::string_view parameter, std::string_view state) const;
};

/// Text form of slices for the gathering over ranks.
std::string slices_to_json(const std::vector<StoredTensor>& tensors);
void append_slices(std::vector<StoredTensor>& all, const std::string& json);

}  // namespace espalier::app
