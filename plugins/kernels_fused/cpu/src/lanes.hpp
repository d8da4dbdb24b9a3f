#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "espalier/error.hpp"
#include "espalier/threads.hpp"

namespace espalier::kernels_fused {

/// Scratch for the threads of the pool: as many lanes as threads; an item of work takes any free one for its time.
/// Which lane an item gets decides nothing but addresses.
class Lanes {
 public:
  explicit Lanes(ThreadPool& pool)
      : pool_(&pool), busy_(static_cast<std::size_t>(pool.size())), scratch_(busy_.size()) {}

  ThreadPool& pool() const { return *pool_; }
  int size() const { return static_cast<int>(busy_.size()); }

  /// Makes every lane at least this big. On the calling thread, outside of run(); allocates when a bigger shape comes
  /// only.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    bytes_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    for (auto& block : scratch_) {
      block.reset();
      block.reset(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{kAlignment})));
    }
  }

  /// One lane, held until destruction.
  class Hold {
   public:
    explicit Hold(Lanes& lanes) : lanes_(&lanes) {
      for (;;) {
        for (index_ = 0; index_ < lanes.size(); ++index_) {
          if (!lanes.busy_[static_cast<std::size_t>(index_)].test_and_set(std::memory_order_acquire)) return;
        }
      }
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { lanes_->busy_[static_cast<std::size_t>(index_)].clear(std::memory_order_release); }

    int index() const { return index_; }
    std::byte* bytes() const { return lanes_->scratch_[static_cast<std::size_t>(index_)].get(); }
    float* floats() const { return reinterpret_cast<float*>(bytes()); }

   private:
    Lanes* lanes_;
    int index_ = 0;
  };

 private:
  static constexpr std::size_t kAlignment = 4096;  // whole pages: lanes of two threads share no cache line
  struct Free {
    void operator()(std::byte* block) const { ::operator delete (block, std::align_val_t{kAlignment}); }
  };

  ThreadPool* pool_;
  std::vector<std::atomic_flag> busy_;
  std::vector<std::unique_ptr<std::byte, Free>> scratch_;
  std::size_t bytes_ = 0;
};

/// Elements an item of element-wise work covers: big enough to hide the cost of an item, small enough to share between
/// threads.
inline constexpr std::int64_t kItemElements = 16384;

/// Runs body(begin, end) over [0, rows) in blocks that depend on the shape alone.
template <class Body>
void run_rows(ThreadPool& pool, std::int64_t rows, std::int64_t cols, Body&& body) {
  if (rows <= 0 || cols <= 0) return;
  const std::int64_t block = cols >= kItemElements ? 1 : kItemElements / cols;
  const std::int64_t items = (rows + block - 1) / block;
  pool.run(items, [&](std::int64_t item) {
    const std::int64_t begin = item * block;
    body(begin, begin + block < rows ? begin + block : rows);
  });
}

}  // namespace espalier::kernels_fused
