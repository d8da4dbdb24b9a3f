#include "checkpoint/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <xxhash.h>

#include "checkpoint/stored_as.hpp"
#include "espalier/error.hpp"
#include "model/layout.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

std::string file_name(int rank) { return fmt::format("data_{:05d}.bin", rank); }

}  // namespace

CheckpointWriter::CheckpointWriter(const Settings& settings, Communicator& world, Device& device,
                                   std::span<const LocalParameter> parameters, std::vector<StatePiece> pieces, std::span<const StateSpec> specs)
    : settings_(settings), store_(settings.folder), world_(world), device_(device), pieces_(std::move(pieces)) {
  std::erase_if(pieces_, [](const StatePiece& piece) { return !piece.writes; });
  for (const StatePiece& piece : pieces_) places_.push_back(stored_as(piece, parameters, specs));
  plan();
  for (const std::string& text : gather_strings(world_, std::to_string(own_bytes_))) world_bytes_ += std::stoull(text);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::plan() {
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const StatePiece& piece = pieces_[p];
    const LocalParameter& local = places_[p];
    std::int64_t elements = 0;
    for_each_run(local, piece, [&](const Run& run) {
      if (run.logical >= 0) elements += run.length;
    });
    if (elements == 0) continue;
    StoredSlice slice;
    slice.file = file_name(world_.rank());
    slice.offset = own_bytes_;
    slice.bytes = static_cast<std::uint64_t>(elements) * size_of(piece.data.dtype);
    slice.placement = local.placement;
    slice.begin = piece.begin;
    slice.end = piece.end;
    own_bytes_ += slice.bytes;
    tensors_.push_back({std::string(local.parameter.name), std::string(piece.state), local.parameter.shape, piece.data.dtype, {slice}});
  }
  if (settings_.saves && (settings_.async || !device_.host_accessible())) reserve_snapshot();
}

void CheckpointWriter::reserve_snapshot() {
  if (!device_.host_accessible()) {
    try {
      pinned_ = device_.reserve_near_host(own_bytes_, kSnapshotMemory);
      snapshot_ = pinned_.data();
      return;
    } catch (const DeviceError& error) {
      log(LogLevel::warning, "checkpoint",
          fmt::format("saves hold up training longer, since their snapshot cannot be pinned: {}", error.what()));
    }
  }
  pageable_ = std::make_unique<std::byte[]>(own_bytes_);
  snapshot_ = pageable_.get();
}

void CheckpointWriter::take_snapshot(Stream& stream) {
  segments_.clear();
  std::size_t slice = 0;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const StatePiece& piece = pieces_[p];
    const LocalParameter& local = places_[p];
    bool any = false;
    std::byte* target = snapshot_ ? snapshot_ + (slice < tensors_.size() ? tensors_[slice].slices[0].offset : 0) : nullptr;
    for_each_run(local, piece, [&](const Run& run) {
      if (run.logical < 0) return;
      any = true;
      const View source = piece.data.flat_range(run.local - piece.begin, run.local - piece.begin + run.length);
      if (!snapshot_) {
        segments_.push_back({static_cast<const std::byte*>(source.data), source.bytes(), slice});
        return;
      }
      device_.copy(source, View::vector(target, run.length, source.dtype), stream);
      target += source.bytes();
    });
    if (!any) continue;
    if (snapshot_) {
      const StoredSlice& stored = tensors_[slice].slices[0];
      segments_.push_back({snapshot_ + stored.offset, stored.bytes, slice});
    }
    ++slice;
  }
  device_.wait(stream);
}

void CheckpointWriter::start(Manifest manifest, Stream& stream) {
  ESPALIER_ASSERT(!in_flight() && settings_.saves);
  phase(world_, [&] {
    if (world_.rank() != 0) return;
    store_.require_space(world_bytes_ + CheckpointStore::kSpareBytes);
    store_.begin(manifest.train.step);
  });
  manifest_ = std::move(manifest);
  take_snapshot(stream);
  problem_.clear();
  problem_code_ = 0;
  done_.store(false, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  if (settings_.async) {
    thread_ = std::thread([this] { write_file(); });
  } else {
    write_file();
  }
}

void CheckpointWriter::write_file() noexcept {
  try {
    const std::string path = (store_.temporary(manifest_->train.step) / file_name(world_.rank())).string();
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) throw IoError(path, "cannot create", errno);
    try {
      write_segments(file, path);
    } catch (...) {
      ::close(file);
      throw;
    }
    if (::close(file) != 0) throw IoError(path, "cannot close", errno);
  } catch (...) {
    const Failure failure = current_failure();
    problem_code_ = failure.code;
    problem_ = failure.text;
  }
  done_.store(true, std::memory_order_release);
}

void CheckpointWriter::write_segments(int file, const std::string& path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(), XXH3_freeState);
  std::size_t current = tensors_.size();
  const auto close_slice = [&] {
    if (current < tensors_.size()) tensors_[current].slices[0].xxh3 = XXH3_64bits_digest(hash.get());
  };
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  for (const Segment& segment : segments_) {
    if (segment.slice != current) {
      close_slice();
      current = segment.slice;
      XXH3_64bits_reset(hash.get());
    }
    for (std::size_t at = 0; at < segment.bytes;) {
      const std::size_t block = std::min(kBlock, segment.bytes - at);
      const ssize_t written = ::write(file, segment.data + at, block);
      if (written < 0) {
        if (errno == EINTR) continue;
        throw IoError(path, fmt::format("cannot write a checkpoint of {} bytes", own_bytes_), errno);
      }
      XXH3_64bits_update(hash.get(), segment.data + at, static_cast<std::size_t>(written));
      at += static_cast<std::size_t>(written);
    }
  }
  close_slice();
  if (::fsync(file) != 0) throw IoError(path, fmt::format("cannot sync a checkpoint of {} bytes", own_bytes_), errno);
}

std::filesystem::path CheckpointWriter::publish() {
  ESPALIER_ASSERT(in_flight());
  if (thread_.joinable()) thread_.join();
  Manifest manifest = *std::exchange(manifest_, std::nullopt);
  const std::int64_t step = manifest.train.step;
  phase(world_, [&] {
    if (problem_code_ != 0) throw Error(static_cast<ExitCode>(problem_code_), problem_);
  });
  const std::vector<std::string> all = gather_strings(world_, slices_to_json(tensors_));
  phase(world_, [&] {
    if (world_.rank() != 0) return;
    for (const std::string& json : all) append_slices(manifest.tensors, json);
    const auto folder = store_.temporary(step);
    write_synced(folder / "recipe.toml", manifest.recipe);
    write_synced(folder / "manifest.json", manifest.to_json());
    store_.publish(step, settings_.keep);
  });
  return store_.folder() / CheckpointStore::name_of(step);
}

}  // namespace espalier::app
