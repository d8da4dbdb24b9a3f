#include "blend_cache.hpp"

#include <array>
#include <filesystem>

#include "fingerprint.hpp"

namespace espalier::data_indexed {
namespace {

constexpr std::int64_t kCachedFrom = 20'000'000;  // steps: a tenth of a second

std::string weights_hash(const BlendRequest& request) {
  return hexadecimal(checksum(request.weights.data(), request.weights.size() * sizeof(double)));
}

std::string settings_text(const BlendRequest& request) {
  return "format = espalier blend cache 1\nweights xxh3 = " + weights_hash(request) +
         "\nparts = " + std::to_string(request.weights.size()) + "\npositions = " + std::to_string(request.positions) +
         "\n";
}

std::array<std::string, 2> files_of(const BlendRequest& request) {
  const std::string stem = request.stem + "_blend_" + std::to_string(request.positions) + "ns_" + weights_hash(request);
  return {stem + "_parts.npy", stem + "_counts.npy"};
}

std::array<Shape, 2> shapes_of(const BlendRequest& request) {
  const auto parts = static_cast<std::int64_t>(request.weights.size());
  const std::int64_t block = BlendOrder::block_for(parts);
  return {Shape{request.positions}, Shape{(request.positions + block - 1) / block + 1, parts}};
}

}  // namespace

bool BlendRequest::cached() const {
  return positions > kCachedFrom / static_cast<std::int64_t>(std::max<std::size_t>(weights.size(), 1));
}

std::optional<BlendOrder> open_blend(const BlendRequest& request, std::string& why) {
  const auto files = files_of(request);
  const auto shapes = shapes_of(request);
  const char* const types[] = {"<u2", "<i8"};
  std::optional<ArrayFile> arrays[2];
  for (std::size_t k = 0; k < 2; ++k) {
    auto check = BlockCheck::read(check_path(files[k]), why);
    if (!check) {
      return std::nullopt;
    }
    if (auto changed = difference(check->settings, settings_text(request))) {
      why = check_path(files[k]) + ": " + *changed;
      return std::nullopt;
    }
    arrays[k] = ArrayFile::open(files[k], std::move(*check), shapes[k], types[k], types[k], why);
    if (!arrays[k]) {
      return std::nullopt;
    }
  }
  return BlendOrder::mapped(*arrays[0], *arrays[1]);
}

void store_blend(const BlendRequest& request) {
  const auto files = files_of(request);
  const auto shapes = shapes_of(request);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(files[0]).parent_path(), ignored);
  std::array<ArrayOutput, 2> outputs{ArrayOutput(files[0]), ArrayOutput(files[1])};
  const BlendOrder order(request.weights, request.positions);
  outputs[0].store(order.parts_array(), shapes[0], true);
  outputs[1].store(order.counts_array(), shapes[1], true);
  const std::string settings = settings_text(request);
  for (ArrayOutput& output : outputs) {
    output.store_check(settings, true);
    output.remove_other_check(settings);
  }
  for (ArrayOutput& output : outputs) {
    output.array().rename_into_place();
  }
  for (ArrayOutput& output : outputs) {
    output.check().rename_into_place();
  }
  sync_folder_of(files[0]);
}

}  // namespace espalier::data_indexed
