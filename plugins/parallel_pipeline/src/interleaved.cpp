#include <algorithm>

#include "orders.hpp"

namespace espalier::parallel_pipeline {
namespace {

/// Forwards of all chunks: a group of `stages` micro-batches through the first chunk, the same through the next, …
Instruction forward_at(int k, int stages, int chunks) {
  const int group = k / (stages * chunks), rest = k % (stages * chunks);
  return {Do::forward, group * stages + rest % stages, rest / stages, 0};
}

/// The same groups through the chunks in reverse.
Instruction backward_at(int k, int stages, int chunks) {
  Instruction at = forward_at(k, stages, chunks);
  at.what = Do::backward;
  at.chunk = chunks - 1 - at.chunk;
  return at;
}

}  // namespace

Orders interleaved_orders(Mode mode, int stages, int chunks, int micro_batches) {
  const int groups = (micro_batches + stages - 1) / stages;
  const int units = groups * stages * chunks;
  Orders orders;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Instruction>& list = orders.emplace_back();
    const auto add = [&](const Instruction& at) {
      if (at.micro_batch < micro_batches) list.push_back(at);
    };
    if (mode == Mode::forward_only) {
      for (int k = 0; k < units; ++k) add(forward_at(k, stages, chunks));
      continue;
    }
    const int ahead = std::min((stages - stage - 1) * 2 + (chunks - 1) * stages, units);
    for (int k = 0; k < ahead; ++k) add(forward_at(k, stages, chunks));
    for (int k = 0; k < units; ++k) {
      if (k + ahead < units) add(forward_at(k + ahead, stages, chunks));
      add(backward_at(k, stages, chunks));
    }
  }
  return orders;
}

}  // namespace espalier::parallel_pipeline
