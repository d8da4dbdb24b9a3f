#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "stream.hpp"

namespace espalier::kernels_fused::cuda {

/// CUDA graphs of a stream's work, found by its contents. Work is kept back as bytes, a segment; whatever must see the
/// stream as it is (an event, a copy of the host, a wait, memory that goes) sends it. A segment that was sent before is
/// then captured as a graph, and each later one with the same bytes (every function, pointer and number) is one launch
/// of that graph. All others run piece by piece: those with anything new, such as the numbers of samples in dropout or
/// a changed learning rate, and those so short that a graph would not pay.
///
/// A hash finds a graph, and comparing all bytes decides. Nothing is allocated once all graphs are made. A failing
/// launch names its piece, as without; capture runs what has run directly before, so that plans, lazily loaded code and
/// workspaces are there.
class Graphs final : public Recorder {
 public:
  using Log = std::function<void(const std::string&)>;
  using Hash = std::uint64_t (*)(const std::byte* bytes, std::size_t count);

  struct Limits {
    std::size_t bytes = std::size_t{1} << 20;  ///< of a segment; a longer one is cut there
    std::size_t fewest = 4;                    ///< pieces that are worth a graph
    std::size_t most = 512;                    ///< graphs at a time
    std::size_t most_pieces = 65536;           ///< pieces in all of them: what bounds their memory
    std::uint64_t idle = 8192;                 ///< segments after which an unused graph may make room for another
    Hash hash = nullptr;                       ///< null: our own
  };

  /// Since the start.
  struct Counts {
    std::uint64_t captured = 0;         ///< graphs made
    std::uint64_t dropped = 0;          ///< graphs that made room
    std::uint64_t launched = 0;         ///< graphs launched
    std::uint64_t launched_pieces = 0;  ///< work in them
    std::uint64_t direct = 0;           ///< segments that ran piece by piece
    std::uint64_t direct_pieces = 0;    ///< work in them
  };

  /// @param stream  no default stream; outlives this.
  /// @param log  may be empty; gets a line when no new graphs come any more.
  Graphs(cudaStream_t stream, Log log, Limits limits);
  explicit Graphs(cudaStream_t stream, Log log = {}) : Graphs(stream, std::move(log), Limits()) {}
  ~Graphs() override;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void send() override;
  /// The same where nothing can be thrown: the next send() or work throws it.
  void send_quietly() noexcept;

  const Counts& counts() const { return counts_; }
  /// Graphs at this moment.
  std::size_t size() const { return graphs_.size(); }

 protected:
  void* room(Runner runner, std::size_t bytes) override;

 private:
  struct Piece;
  struct Graph;
  struct Segment;

  void throw_pending();
  void run(const Segment& segment) const;
  void run_directly(const Segment& segment);
  Graph* find(const Segment& segment) const;
  /// Whether a segment was sent before, as far as is remembered; remembers it.
  bool seen(std::uint64_t hash);
  bool make_room(std::size_t pieces);
  Graph* capture(const Segment& segment);
  void launch(Graph& graph);
  void say();

  static constexpr std::size_t kRemembered = 4096;

  cudaStream_t stream_;
  Log log_;
  Limits limits_;
  std::unique_ptr<std::byte[]> arena_;
  std::size_t used_ = 0;     ///< bytes of the arena
  std::size_t pieces_ = 0;   ///< in them
  std::uint64_t clock_ = 0;  ///< segments so far
  std::vector<std::uint64_t> remembered_;
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Graph>> graphs_;
  std::size_t graph_bytes_ = 0;  ///< of device memory
  std::size_t graph_pieces_ = 0;
  std::uint64_t known_in_a_row_ = 0;  ///< launches since the last graph was made
  std::uint64_t said_ = 0;            ///< graphs made when the log was told last
  Counts counts_;
  std::exception_ptr pending_;
};

}  // namespace espalier::kernels_fused::cuda
