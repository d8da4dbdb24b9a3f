#include "graphs.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "check.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

/// Eight bytes at a time, each multiplied in and folded: a few gigabytes a second, which is a fraction of what
/// recording takes.
std::uint64_t hash_of(const std::byte* bytes, std::size_t count) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = count * kOdd;
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= count; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    hash = (std::rotl(hash, 29) ^ word) * kOdd;
    hash ^= hash >> 32;
  }
  return hash;
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  return free;
}

constexpr const char* kCapture = "capture of a CUDA graph (backend.graphs = false does without)";

}  // namespace

/// What lies before the bytes of each piece of work.
struct alignas(Recorder::kAlignment) Graphs::Piece {
  Runner run;
  std::size_t bytes;  ///< of the work, rounded up to the alignment
};

struct Graphs::Segment {
  const std::byte* bytes;
  std::size_t count;
  std::size_t pieces;
  std::uint64_t hash = 0;
};

struct Graphs::Graph {
  std::vector<std::byte> bytes;  ///< of the segment
  std::size_t pieces = 0;
  std::uint64_t last_used = 0;
  std::size_t device_bytes = 0;
  cudaGraphExec_t executable = nullptr;

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
  }
};

Graphs::Graphs(cudaStream_t stream, Log log, Limits limits)
    : stream_(stream),
      log_(std::move(log)),
      limits_(limits),
      arena_(std::make_unique<std::byte[]>(limits.bytes)),
      remembered_(kRemembered) {
  if (limits_.hash == nullptr) limits_.hash = hash_of;
}

Graphs::~Graphs() {
  send_quietly();
  cudaStreamSynchronize(stream_);  // graphs must not go while they run
}

void Graphs::throw_pending() {
  if (pending_) std::rethrow_exception(std::exchange(pending_, nullptr));
}

void* Graphs::room(Runner runner, std::size_t bytes) {
  throw_pending();
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  ESPALIER_ASSERT(sizeof(Piece) + rounded <= limits_.bytes);
  if (used_ + sizeof(Piece) + rounded > limits_.bytes) send();
  std::byte* const at = arena_.get() + used_;
  ::new (at) Piece{runner, rounded};
  std::memset(at + sizeof(Piece) + bytes, 0, rounded - bytes);
  used_ += sizeof(Piece) + rounded;
  pieces_ += 1;
  return at + sizeof(Piece);
}

void Graphs::send() {
  throw_pending();
  if (used_ == 0) return;
  // Empty from here on: what fails is not tried again.
  Segment segment{arena_.get(), std::exchange(used_, 0), std::exchange(pieces_, 0)};
  clock_ += 1;
  if (segment.pieces < limits_.fewest) return run_directly(segment);
  segment.hash = limits_.hash(segment.bytes, segment.count) | 1;  // 0: nothing is remembered there
  Graph* graph = find(segment);
  if (graph == nullptr && seen(segment.hash) && make_room(segment.pieces)) graph = capture(segment);
  if (graph == nullptr) return run_directly(segment);
  launch(*graph);
}

void Graphs::send_quietly() noexcept {
  try {
    send();
  } catch (...) {
    pending_ = std::current_exception();
  }
}

void Graphs::run(const Segment& segment) const {
  for (std::size_t at = 0; at < segment.count;) {
    const auto& piece = *std::launder(reinterpret_cast<const Piece*>(segment.bytes + at));
    piece.run(segment.bytes + at + sizeof(Piece), stream_);
    at += sizeof(Piece) + piece.bytes;
  }
}

void Graphs::run_directly(const Segment& segment) {
  counts_.direct += 1;
  counts_.direct_pieces += segment.pieces;
  run(segment);
}

Graphs::Graph* Graphs::find(const Segment& segment) const {
  const auto [first, last] = graphs_.equal_range(segment.hash);
  const auto found = std::find_if(first, last, [&](const auto& entry) {
    const std::vector<std::byte>& bytes = entry.second->bytes;
    return bytes.size() == segment.count && std::memcmp(bytes.data(), segment.bytes, segment.count) == 0;
  });
  return found == last ? nullptr : found->second.get();
}

bool Graphs::seen(std::uint64_t hash) {
  std::uint64_t& slot = remembered_[hash / 2 % kRemembered];
  return std::exchange(slot, hash) == hash;
}

/// A graph that is used in every step must not go for another that is: they would be made anew for ever.
bool Graphs::make_room(std::size_t pieces) {
  if (pieces > limits_.most_pieces) return false;
  while (graphs_.size() >= limits_.most || graph_pieces_ + pieces > limits_.most_pieces) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second->last_used < b.second->last_used;
    });
    if (oldest == graphs_.end() || clock_ - oldest->second->last_used < limits_.idle) return false;
    check(cudaStreamSynchronize(stream_), "waiting for a CUDA graph that makes room");
    graph_bytes_ -= oldest->second->device_bytes;
    graph_pieces_ -= oldest->second->pieces;
    graphs_.erase(oldest);
    counts_.dropped += 1;
  }
  return true;
}

/// In thread-local mode, so that threads of libraries (NCCL's) may call what they like meanwhile.
Graphs::Graph* Graphs::capture(const Segment& segment) {
  auto made = std::make_unique<Graph>();
  made->bytes.assign(segment.bytes, segment.bytes + segment.count);
  made->pieces = segment.pieces;
  const std::size_t free_before = free_memory();
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), kCapture);
  try {
    run(segment);
  } catch (...) {
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), kCapture);
  const cudaError_t status = cudaGraphInstantiate(&made->executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, kCapture);
  check(cudaGraphUpload(made->executable, stream_), kCapture);
  const std::size_t free_after = free_memory();
  made->device_bytes = free_before > free_after ? free_before - free_after : 0;
  graph_bytes_ += made->device_bytes;
  graph_pieces_ += made->pieces;
  counts_.captured += 1;
  known_in_a_row_ = 0;
  return graphs_.emplace(segment.hash, std::move(made))->second.get();
}

void Graphs::launch(Graph& graph) {
  check(cudaGraphLaunch(graph.executable, stream_), "launch of a CUDA graph");
  graph.last_used = clock_;
  counts_.launched += 1;
  counts_.launched_pieces += graph.pieces;
  known_in_a_row_ += 1;
  if (known_in_a_row_ >= 2 * graphs_.size() && said_ != counts_.captured) say();
}

void Graphs::say() {
  said_ = counts_.captured;
  if (!log_) return;
  log_("graphs: " + std::to_string(graphs_.size()) + " CUDA graphs of " + std::to_string(graph_pieces_) +
       " launches, in " + std::to_string(graph_bytes_ >> 20) + " MiB of device memory; so far launched " +
       std::to_string(counts_.launched) + " times in place of " + std::to_string(counts_.launched_pieces) +
       " launches, and " + std::to_string(counts_.direct_pieces) + " went one by one");
}

}  // namespace espalier::kernels_fused::cuda
