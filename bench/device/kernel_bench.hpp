#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "step_bench.hpp"

namespace espalier::bench {

struct KernelBenchSettings {
  std::int64_t tokens = 16384;
  std::int64_t copy_bytes = std::int64_t{512} << 20;
  std::int64_t peak = 8192;  ///< side of the square product that stands for the device's peak
  double seconds = 0.1;      ///< of one measurement, repeated five times
};

/// Times the kernels one by one at the shapes of a model, and prints a line for each.
///
/// Bytes are those that must move: each operand read once, each result written once. A kernel that keeps enough of them
/// under way reaches what a copy reaches; that needs about 32 KiB a multiprocessor (4 TB/s and 0.8 us to memory, over
/// 132 of them), which one of 256 threads a block has with 64 bytes a thread at a quarter of the threads. What cannot
/// reach it by its bytes: row maximum and sum of exponentials read alone, where a copy also writes, and may exceed 100
/// %; layer norm backward of rows beyond 4,096 elements reads its operands twice (67 %); squared sums end with one
/// thread's additions in a fixed order. Not here: combine.cu, which needs several ranks, random.cu, which a step does
/// not use, and softmax.cu, a part of the own attention.
class KernelBench {
 public:
  KernelBench(Backend& backend, const KernelBenchSettings& settings, const RunFacts& facts);
  ~KernelBench();

  /// A copy and a large product: what the others are held against. First.
  Rates rates();
  /// Kernels that move memory.
  void memory();
  /// Products of a layer and of the head, and attention.
  void products();
  nlohmann::ordered_json rows();

 private:
  class Bench;
  std::unique_ptr<Bench> bench_;
};

}  // namespace espalier::bench
