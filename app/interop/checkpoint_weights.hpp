#pragma once

#include <filesystem>

#include "checkpoint/reader.hpp"
#include "interop/weights.hpp"

namespace espalier::app {

/// The master weights of one of our checkpoints, whatever layout wrote it.
class CheckpointWeights final : public WeightSource {
 public:
  /// @param reader  must outlive this.
  explicit CheckpointWeights(const CheckpointReader& reader) : reader_(reader) {}

  const ModelShape& shape() const override { return reader_.manifest().model; }
  const std::filesystem::path& folder() const override { return reader_.folder(); }
  DType dtype_of(const Parameter& parameter) const override { return at(parameter).dtype; }
  std::int64_t rows_of(const Parameter& parameter) const override { return at(parameter).shape[0]; }
  std::unique_ptr<WeightReader> open(const Parameter& parameter) const override;

 private:
  const StoredTensor& at(const Parameter& parameter) const;
  const CheckpointReader& reader_;
};

}  // namespace espalier::app
