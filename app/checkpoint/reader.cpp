#include "checkpoint/reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <xxhash.h>

#include "checkpoint/stored_as.hpp"
#include "espalier/error.hpp"
#include "model/layout.hpp"

namespace espalier::app {
namespace {

/// A data file mapped for reading, with the slices that were checked already.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& path) : path_(path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw IoError(path.string(), "cannot open", errno);
    struct stat info {};
    const int error = ::fstat(file, &info) == 0 ? 0 : errno;
    size_ = static_cast<std::size_t>(info.st_size);
    if (error == 0 && size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int map_error = errno;
    ::close(file);
    if (error != 0) throw IoError(path.string(), "cannot stat", error);
    if (data_ == MAP_FAILED) throw IoError(path.string(), "cannot map", map_error);
  }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  const std::byte* checked(const StoredSlice& slice) {
    const auto* bytes = static_cast<const std::byte*>(data_) + slice.offset;
    if (checked_.insert(slice.offset).second && XXH3_64bits(bytes, slice.bytes) != slice.xxh3) {
      throw IoError(fmt::format("{}: bytes {} to {} are damaged (checksum does not match); load an older checkpoint", path_.string(),
                                slice.offset, slice.offset + slice.bytes));
    }
    return bytes;
  }

 private:
  std::filesystem::path path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::set<std::uint64_t> checked_;
};

class DataFiles {
 public:
  explicit DataFiles(const std::filesystem::path& folder) : folder_(folder) {}
  DataFile& operator[](const std::string& name) {
    auto& file = files_[name];
    if (!file) file = std::make_unique<DataFile>(folder_ / name);
    return *file;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::unique_ptr<DataFile>> files_;
};

/// Logical range of a stored run and where its first byte lies.
struct StoredRun {
  std::int64_t logical = 0;
  std::int64_t length = 0;
  const StoredSlice* slice = nullptr;
  std::uint64_t byte = 0;  ///< from the slice's first byte
};

/// All runs of a tensor, ascending in logical order.
std::vector<StoredRun> stored_runs(const StoredTensor& tensor) {
  std::vector<StoredRun> runs;
  for (const StoredSlice& slice : tensor.slices) {
    LocalParameter local;
    local.parameter.shape = tensor.shape;
    local.placement = slice.placement;
    std::uint64_t byte = 0;
    for_each_run(local, slice.begin, slice.end, [&](const Run& run) {
      if (run.logical < 0) return;
      runs.push_back({run.logical, run.length, &slice, byte});
      byte += static_cast<std::uint64_t>(run.length) * size_of(tensor.dtype);
    });
    if (byte != slice.bytes) throw IoError(fmt::format("manifest.json: {} {}: a slice has {} bytes, its range {}", tensor.parameter, tensor.state, slice.bytes, byte));
  }
  std::ranges::sort(runs, {}, &StoredRun::logical);
  std::int64_t covered = 0;
  for (const StoredRun& run : runs) {
    if (run.logical != covered) break;
    covered += run.length;
  }
  if (covered != tensor.shape.elements()) {
    throw IoError(fmt::format("manifest.json: the slices of {} {} do not cover its {} elements once", tensor.parameter, tensor.state,
                              tensor.shape.elements()));
  }
  return runs;
}

/// Calls body(bytes, offset in the range, elements) for the stored bytes of logical [begin, end).
template <class Body>
void for_each_stored(const std::vector<StoredRun>& runs, DType dtype, DataFiles& files, std::int64_t begin, std::int64_t end, Body&& body) {
  auto run = std::ranges::upper_bound(runs, begin, {}, &StoredRun::logical);
  if (run != runs.begin()) --run;
  for (std::int64_t at = begin; at < end; ++run) {
    const std::int64_t stop = std::min(end, run->logical + run->length);
    const std::byte* bytes = files[run->slice->file].checked(*run->slice) + run->byte +
                             static_cast<std::uint64_t>(at - run->logical) * size_of(dtype);
    body(bytes, at - begin, stop - at);
    at = stop;
  }
}

/// Up to four names of a list, for one line.
std::string some(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 4; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > 4) text += fmt::format(" and {} more", names.size() - 4);
  return text;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder) : folder_(std::move(folder)), manifest_(Manifest::read(folder_)) {}

void CheckpointReader::require_model(const ModelShape& model) const {
  if (manifest_.model.heads == model.heads) return;
  throw IoError(fmt::format("{}: does not fit this model: model.heads was {}, now {}", folder_.string(), manifest_.model.heads, model.heads));
}

std::vector<std::string> CheckpointReader::load(std::span<const Parameter> logical, std::span<const LocalParameter> locals,
                                                std::span<const StatePiece> pieces, LoadOptimizer policy, Device& device,
                                                Stream& stream, std::span<const StateSpec> specs) const {
  // First look, then touch.
  std::map<std::string, const Parameter*, std::less<>> model;
  for (const Parameter& parameter : logical) model[std::string(parameter.name)] = &parameter;
  std::set<std::string> wanted_states;  // like_parameter and per_tensor: one of each parameter
  std::set<std::string> wanted_globals;
  for (const StatePiece& piece : pieces) (piece.parameter < 0 ? wanted_globals : wanted_states).insert(std::string(piece.state));

  std::map<std::pair<std::string, std::string>, const StoredTensor*> stored;
  std::vector<std::string> missing, extra, misshaped, notes;
  std::set<std::string> extra_states;
  const Shape one_number = {1};
  for (const StoredTensor& tensor : manifest_.tensors) {
    if (tensor.parameter.empty()) {
      if (wanted_globals.contains(tensor.state)) {
        stored[{"", tensor.state}] = &tensor;
      } else {
        extra_states.insert(tensor.state);
      }
      continue;
    }
    const auto found = model.find(tensor.parameter);
    if (found == model.end()) {
      if (tensor.state == "master") extra.push_back(tensor.parameter);
      continue;
    }
    const Shape& shape = keep_of(specs, tensor.state) == Keep::like_parameter ? found->second->shape : one_number;
    if (!(shape == tensor.shape) && wanted_states.contains(tensor.state)) {
      if (tensor.state == "master") misshaped.push_back(tensor.parameter + " " + to_string(tensor.shape) + " against " + to_string(found->second->shape));
      continue;
    }
    if (!wanted_states.contains(tensor.state)) {
      extra_states.insert(tensor.state);
      continue;
    }
    stored[{tensor.parameter, tensor.state}] = &tensor;
  }
  std::set<std::string> missing_states;
  for (const Parameter& parameter : logical) {
    for (const std::string& state : wanted_states) {
      if (stored.contains({std::string(parameter.name), state})) continue;
      if (state == "master") {
        missing.emplace_back(parameter.name);
      } else if (stored.contains({std::string(parameter.name), "master"})) {  // else the parameter itself is what is missing
        missing_states.insert(state);
      }
    }
  }
  for (const std::string& state : wanted_globals) {
    if (!stored.contains({"", state})) missing_states.insert(state);
  }
  std::string problem;
  const auto complain = [&](std::string_view what, const std::vector<std::string>& names) {
    if (!names.empty()) problem += fmt::format("{}{}: {}", problem.empty() ? "" : "; ", what, some(names));
  };
  complain("misshaped (checkpoint against model)", misshaped);
  std::erase_if(missing, [&](const std::string& name) {
    return std::ranges::any_of(misshaped, [&](const std::string& other) { return other.starts_with(name + " "); });
  });
  complain("missing in the checkpoint", missing);
  complain("not in the model", extra);
  if (policy == LoadOptimizer::strict) {
    complain("optimizer state missing in the checkpoint", {missing_states.begin(), missing_states.end()});
    complain("optimizer state this run does not have", {extra_states.begin(), extra_states.end()});
    if (!missing_states.empty() || !extra_states.empty()) {
      problem += "; checkpoint.load_optimizer = \"convert\" takes what fits, \"skip\" the weights alone";
    }
  }
  if (!problem.empty()) throw IoError(folder_.string() + ": does not fit this model: " + problem);
  if (policy == LoadOptimizer::convert) {
    for (const std::string& state : missing_states) notes.push_back("optimizer state " + state + " starts anew: the checkpoint has none");
    for (const std::string& state : extra_states) notes.push_back("optimizer state " + state + " of the checkpoint is dropped");
  }

  DataFiles files(folder_);
  std::map<const StoredTensor*, std::vector<StoredRun>> runs;
  for (const StatePiece& piece : pieces) {
    if (policy == LoadOptimizer::skip && piece.state != "master") continue;
    const LocalParameter local = stored_as(piece, locals, specs);
    const auto found = stored.find({std::string(local.parameter.name), std::string(piece.state)});
    if (found == stored.end()) continue;
    const StoredTensor& tensor = *found->second;
    if (tensor.dtype != piece.data.dtype) {
      throw IoError(fmt::format("{}: {} {} is {}, this run keeps it as {}", folder_.string(), tensor.parameter, tensor.state,
                                name_of(tensor.dtype), name_of(piece.data.dtype)));
    }
    auto& tensor_runs = runs[&tensor];
    if (tensor_runs.empty()) tensor_runs = stored_runs(tensor);
    for_each_run(local, piece, [&](const Run& run) {
      const std::int64_t first = run.local - piece.begin;
      if (run.logical < 0) {
        device.fill_zero(piece.data.flat_range(first, first + run.length), stream);
        return;
      }
      for_each_stored(tensor_runs, tensor.dtype, files, run.logical, run.logical + run.length,
                      [&](const std::byte* bytes, std::int64_t offset, std::int64_t count) {
                        device.copy(View::vector(const_cast<std::byte*>(bytes), count, tensor.dtype),
                                    piece.data.flat_range(first + offset, first + offset + count), stream);
                      });
    });
  }
  device.wait(stream);
  return notes;
}

struct CheckpointReader::Blocks::Impl {
  DType dtype;
  std::vector<StoredRun> runs;
  DataFiles files;
};

CheckpointReader::Blocks::Blocks(const std::filesystem::path& folder, const StoredTensor& tensor)
    : impl_(new Impl{tensor.dtype, stored_runs(tensor), DataFiles(folder)}) {}
CheckpointReader::Blocks::~Blocks() = default;

void CheckpointReader::Blocks::read(std::int64_t first, std::span<float> dst) {
  for_each_stored(impl_->runs, impl_->dtype, impl_->files, first, first + static_cast<std::int64_t>(dst.size()),
                  [&](const std::byte* bytes, std::int64_t offset, std::int64_t count) {
                    with_float_type(impl_->dtype, [&](auto zero) {
                      using T = decltype(zero);
                      for (std::int64_t i = 0; i < count; ++i) {
                        T value;
                        std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
                        dst[static_cast<std::size_t>(offset + i)] = to_float(value);
                      }
                    });
                  });
}

std::vector<float> CheckpointReader::read_tensor(const StoredTensor& tensor) const {
  Blocks blocks(folder_, tensor);  // first: a damaged shape must not decide how much memory is asked for
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
  blocks.read(0, values);
  return values;
}

}  // namespace espalier::app
