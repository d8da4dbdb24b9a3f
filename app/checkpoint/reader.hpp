#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "espalier/device.hpp"
#include "espalier/optimizer.hpp"

namespace espalier::app {

/// What to do when the checkpoint's optimizer state is not what the run needs.
enum class LoadOptimizer : std::uint8_t {
  strict,   ///< refuse, listing what is missing and what is left over
  convert,  ///< take what has the same name, start the rest at its initial value, list both
  skip,     ///< weights only
};

/// Reads checkpoints of any topology into any other: a piece of state is put together from the slices that cover it.
class CheckpointReader {
 public:
  /// @throws IoError when the folder is no complete checkpoint.
  explicit CheckpointReader(std::filesystem::path folder);

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }

  /// What names and shapes do not show. @throws IoError when the model has other heads: the same weights would mean something else.
  void require_model(const ModelShape& model) const;

  /// Compares names, states and shapes before anything is changed, then fills every piece, checking checksums of all it reads.
  /// The caller refreshes working weights afterwards. Local to the rank.
  /// @param logical  every logical parameter of the model.
  /// @param specs  the optimizer's: which state is one number for a tensor, or for the whole model.
  /// @returns what was converted: one line each, empty when all matched.
  /// @throws IoError listing the first missing, extra and misshaped names, or naming file and range of damaged bytes.
  std::vector<std::string> load(std::span<const Parameter> logical, std::span<const LocalParameter> locals,
                                std::span<const StatePiece> pieces, LoadOptimizer policy, Device& device, Stream& stream,
                                std::span<const StateSpec> specs = {}) const;

  /// One whole logical tensor in FP32, for inspection.
  std::vector<float> read_tensor(const StoredTensor& tensor) const;

  /// The same a block at a time, for export; what is mapped of the files is given back when it goes.
  class Blocks {
   public:
    /// @throws IoError when the slices do not cover the tensor once.
    Blocks(const std::filesystem::path& folder, const StoredTensor& tensor);
    ~Blocks();
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;
    /// Elements [first, first + dst.size()) in logical order. @throws IoError naming damaged bytes.
    void read(std::int64_t first, std::span<float> dst);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
};

}  // namespace espalier::app
