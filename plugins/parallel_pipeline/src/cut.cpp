#include "cut.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "espalier/error.hpp"

namespace espalier::parallel_pipeline {
namespace {

/// How many of `all` the parts before this one have when they differ by one at most.
int before(int part, int all, int parts) { return part * (all / parts) + std::min(part, all % parts); }

}  // namespace

std::vector<int> cut_blocks(int layers, int parts) {
  std::vector<int> first = {0};
  for (int part = 1; part < parts; ++part) first.push_back(1 + before(part, layers - 2, parts));
  first.push_back(layers);
  return first;
}

std::vector<int> cut_slots(int layers, int parts) {
  std::vector<int> first;
  for (int part = 0; part <= parts; ++part) first.push_back(before(part, layers, parts));
  return first;
}

std::vector<int> cut_weights(std::span<const double> weights, int parts) {
  const auto layers = static_cast<int>(weights.size());
  if (layers < parts) return cut_slots(layers, parts);
  const auto index = [&](int part, int end) { return static_cast<std::size_t>(part * (layers + 1) + end); };
  // best: largest part of the first `end` layers in `part` parts; from: where the last of them starts.
  std::vector<double> best(index(parts, layers) + 1, std::numeric_limits<double>::infinity());
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int part = 1; part <= parts; ++part) {
    for (int end = part; end <= layers; ++end) {
      double last = 0;
      for (int begin = end - 1; begin >= part - 1; --begin) {
        last += weights[static_cast<std::size_t>(begin)];
        if (last > best[index(part, end)]) break;  // it only grows
        const double largest = std::max(last, best[index(part - 1, begin)]);
        if (largest > best[index(part, end)]) continue;
        best[index(part, end)] = largest;
        from[index(part, end)] = begin;
      }
    }
  }
  std::vector<int> first(static_cast<std::size_t>(parts) + 1, layers);
  for (int part = parts; part > 0; --part) {
    const auto at = static_cast<std::size_t>(part);
    first[at - 1] = from[index(part, first[at])];
  }
  return first;
}

std::vector<int> cut_list(std::span<const std::int64_t> sizes) {
  std::vector<int> first = {0};
  for (const std::int64_t size : sizes) first.push_back(first.back() + static_cast<int>(size));
  return first;
}

std::vector<double> layer_parameters(const ModelShape& model) {
  const auto h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn);
  const double table = static_cast<double>(model.vocab) * h;
  std::vector<double> counts(static_cast<std::size_t>(model.layers) + 2, 4 * h * h + 2 * h * f + 9 * h + f);
  counts.front() = table + static_cast<double>(model.positions) * h + (model.embedding_norm ? 2 * h : 0);
  counts.back() = table + 2 * h;
  return counts;
}

void check_cut(std::span<const int> cut, int layers, int stages) {
  const auto parts = static_cast<int>(cut.size()) - 1;
  const std::string chunks = parts == stages ? "" : " of " + std::to_string(parts / stages) + " chunks";
  if (cut.back() != layers) {
    throw ConfigError("parallel.pipeline.parts: " + std::to_string(cut.back()) + " layers in all, the model has " +
                      std::to_string(layers) + " (embedding, " + std::to_string(layers - 2) + " blocks, head)");
  }
  for (int part = 0; part < parts; ++part) {
    const auto at = static_cast<std::size_t>(part);
    if (cut[at] < cut[at + 1]) continue;
    throw ConfigError("parallel.pipeline: " + std::to_string(layers - 2) + " blocks, embedding and head leave part " +
                      std::to_string(part) + " of " + std::to_string(parts) + " empty (" + std::to_string(stages) +
                      " stages" + chunks + "); use fewer, or cut = \"slots\"");
  }
}

}  // namespace espalier::parallel_pipeline
