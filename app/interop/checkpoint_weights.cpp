#include "interop/checkpoint_weights.hpp"

#include <fmt/format.h>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

class Reader final : public WeightReader {
 public:
  Reader(const std::filesystem::path& folder, const StoredTensor& tensor) : blocks_(folder, tensor) {}
  void read(std::int64_t first, std::span<float> dst) override { blocks_.read(first, dst); }

 private:
  CheckpointReader::Blocks blocks_;
};

}  // namespace

const StoredTensor& CheckpointWeights::at(const Parameter& parameter) const {
  const StoredTensor* tensor = reader_.manifest().find(parameter.name, "master");
  if (tensor == nullptr) {
    throw IoError(fmt::format("{}: has no weights of {}", (folder() / "manifest.json").string(), parameter.name));
  }
  if (!(tensor->shape == parameter.shape)) {
    throw IoError(fmt::format("{}: {} has shape {}, the model of the manifest needs {}",
                              (folder() / "manifest.json").string(), parameter.name, to_string(tensor->shape),
                              to_string(parameter.shape)));
  }
  return *tensor;
}

std::unique_ptr<WeightReader> CheckpointWeights::open(const Parameter& parameter) const {
  return std::make_unique<Reader>(folder(), at(parameter));
}

}  // namespace espalier::app
