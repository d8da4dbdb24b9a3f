#include "interop/checkpoint_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <xxhash.h>
#include <algorithm>
#include <cerrno>
#include <memory>

#include "checkpoint/manifest.hpp"
#include "checkpoint/store.hpp"
#include "espalier/error.hpp"
#include "interop/huggingface_config.hpp"
#include "interop/new_folder.hpp"

namespace espalier::app {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 18;  // elements read at a time
constexpr const char* kDataFile = "data_00000.bin";

/// A data file of a checkpoint, written from start to end.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& path)
      : path_(path.string()), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw IoError(path_, "cannot create", errno);
  }
  ~DataFile() {
    if (file_ >= 0) ::close(file_);
  }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  void write(std::span<const float> values) {
    auto rest = std::as_bytes(values);
    XXH3_64bits_update(hash_.get(), rest.data(), rest.size());
    while (!rest.empty()) {
      const ssize_t written = ::write(file_, rest.data(), rest.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        throw IoError(path_, "cannot write", errno);
      }
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
  }
  void start_slice() { XXH3_64bits_reset(hash_.get()); }
  std::uint64_t hash() const { return XXH3_64bits_digest(hash_.get()); }
  void finish() {
    const int synced = ::fsync(file_) == 0 ? 0 : errno;
    const int file = std::exchange(file_, -1);
    if (::close(file) != 0 && synced == 0) throw IoError(path_, "cannot close", errno);
    if (synced != 0) throw IoError(path_, "cannot sync", synced);
  }

 private:
  std::string path_;
  int file_;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_{XXH3_createState(), XXH3_freeState};
};

void write_tensor(const WeightSource& source, const Parameter& parameter, DataFile& out,
                  FunctionRef<void(std::int64_t)> advanced) {
  const std::int64_t elements = parameter.shape.elements();
  const std::int64_t width = parameter.shape.rank() >= 2 ? parameter.shape.cols() : 1;
  const std::int64_t known = std::min(source.rows_of(parameter) * width, elements);
  const std::unique_ptr<WeightReader> reader = source.open(parameter);
  std::vector<float> block(static_cast<std::size_t>(std::min(kBlock, elements)));
  for (std::int64_t at = 0; at < elements; at += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - at);
    const auto there = static_cast<std::size_t>(std::clamp<std::int64_t>(known - at, 0, n));
    const auto part = std::span(block).first(static_cast<std::size_t>(n));
    if (there > 0) reader->read(at, part.first(there));
    std::ranges::fill(part.subspan(there), 0.0f);
    out.write(part);
    advanced(n * static_cast<std::int64_t>(sizeof(float)));
  }
}

StoredSlice whole_slice(const Parameter& parameter, std::uint64_t offset) {
  StoredSlice slice;
  slice.file = kDataFile;
  slice.offset = offset;
  slice.bytes = static_cast<std::uint64_t>(parameter.shape.elements()) * sizeof(float);
  slice.placement = {Copies::whole, -1, 0, parameter.shape[0], parameter.shape[0], parameter.shape};
  slice.end = parameter.shape.elements();
  return slice;
}

/// Removes a step's temporary folder unless it was published.
class Unfinished {
 public:
  explicit Unfinished(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ~Unfinished() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  std::filesystem::path folder_;
};

}  // namespace

WrittenModel write_checkpoint(const WeightSource& source, const ParameterList& parameters, const CheckpointImport& what,
                              FunctionRef<void(std::int64_t)> advanced) {
  const CheckpointStore store(what.folder);
  if (!store.steps().empty()) {
    throw IoError(what.folder.string() + ": holds checkpoints already; name another folder");
  }
  const auto bytes = static_cast<std::uint64_t>(parameters.count()) * sizeof(float);
  require_free(std::filesystem::absolute(what.folder), bytes + CheckpointStore::kSpareBytes);
  store.begin(0);
  const std::filesystem::path folder = store.temporary(0);
  const Unfinished cleanup(folder);

  Manifest manifest;
  manifest.recipe = what.recipe;
  manifest.tokenizer = what.tokenizer;
  manifest.provider = std::string(kConvertedFrom) + what.origin;
  manifest.model = what.shape;
  WrittenModel written{1, 0, 0};
  DataFile file(folder / kDataFile);
  for (const Parameter& parameter : parameters.all()) {
    StoredSlice slice = whole_slice(parameter, static_cast<std::uint64_t>(written.bytes));
    file.start_slice();
    write_tensor(source, parameter, file, advanced);
    slice.xxh3 = file.hash();
    ++written.tensors;
    written.bytes += static_cast<std::int64_t>(slice.bytes);
    manifest.tensors.push_back({std::string(parameter.name), "master", parameter.shape, DType::f32, {slice}});
  }
  file.finish();
  for (const std::filesystem::path& companion : what.companions) copy_synced(companion, folder / companion.filename());
  if (!what.config.empty()) write_synced(folder / kKeptConfig, what.config);
  write_synced(folder / "recipe.toml", what.recipe);
  write_synced(folder / "manifest.json", manifest.to_json());
  store.publish(0, 0);
  return written;
}

}  // namespace espalier::app
