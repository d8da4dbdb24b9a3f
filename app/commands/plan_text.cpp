#include "commands/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::app {
namespace {

// Of more groups than this the first two and the last are shown.
constexpr int kMostGroups = 8;
// Of more ranks in a group than this the first three and the last are shown.
constexpr int kMostRanks = 16;

std::string ranks_text(int first, int step, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (count > kMostRanks && i > 2 && i < count - 1) {
      if (i == 3) text += " ...";
      continue;
    }
    text += (i == 0 ? "" : " ") + std::to_string(first + i * step);
  }
  return text;
}

/// Groups of `count` ranks that lie `step` apart.
std::string group_line(std::string_view name, int world, int step, int count) {
  const int groups = world / count;
  std::string text = fmt::format("{} groups ({} of {}):", name, groups, count);
  for (int g = 0; g < groups; ++g) {
    if (groups > kMostGroups && g > 1 && g < groups - 1) {
      if (g == 2) text += " ...";
      continue;
    }
    const int first = g / step * step * count + g % step;
    text += " [" + ranks_text(first, step, count) + "]";
  }
  return text;
}

std::string bytes_text(std::size_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= (std::size_t{1} << 30)) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= (std::size_t{1} << 20)) return fmt::format("{:.2f} MiB", value / (1 << 20));
  return fmt::format("{:.2f} KiB", value / (1 << 10));
}

std::string range_text(const LayerRange& range, std::int64_t layers) {
  const int head = static_cast<int>(layers) + 1;
  std::string text;
  if (range.contains(0)) text = "embedding";
  const int first = std::max(range.first, 1), end = std::min(range.end, head);
  if (first < end) {
    text += text.empty() ? "" : ", ";
    text += end - first == 1 ? fmt::format("block {}", first - 1) : fmt::format("blocks {} to {}", first - 1, end - 2);
  }
  if (range.contains(head)) text += text.empty() ? "head" : ", head";
  return text;
}

}  // namespace

std::string grouped(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string grid_text(const Grid& grid) {
  return fmt::format("world {} = tensor {} × data {} × pipeline {}", grid.world(), grid.tensor, grid.data,
                     grid.pipeline);
}

std::string groups_text(const Grid& grid, std::string_view in_front) {
  const int world = grid.world();
  return fmt::format("{0}tensor innermost, then data, pipeline outermost: rank = tensor + {1} · (data + {2} · stage)\n",
                     in_front, grid.tensor, grid.data) +
         fmt::format("{}{}\n", in_front, group_line("tensor", world, 1, grid.tensor)) +
         fmt::format("{}{}\n", in_front, group_line("data", world, grid.tensor, grid.data)) +
         fmt::format("{}{}\n", in_front, group_line("pipeline", world, grid.tensor * grid.data, grid.pipeline));
}

std::string layers_text(std::span<const LayerRange> parts, std::int64_t layers) {
  std::string text;
  for (const LayerRange& part : parts) text += (text.empty() ? "" : " | ") + range_text(part, layers);
  return text;
}

std::string stages_text(const Recipe& recipe, const DryRunReport& report, std::string_view in_front) {
  if (report.stages.empty()) return "";
  const int ranks = recipe.grid.tensor * recipe.grid.data;
  std::size_t width = 6;
  for (const StagePlan& stage : report.stages) {
    width = std::max(width, layers_text(stage.parts, recipe.model.layers).size());
  }
  std::string text = fmt::format("{}{:>5}  {:<13}  {:<{}}  {:>14}  {:>10}  {:>10}  {:>10}  {:>10}  {:>11}  {:>10}\n",
                                 in_front, "stage", "ranks", "layers", width, "parameters", "weights", "gradients",
                                 "optimizer", "scratch", "activations", "total");
  for (const StagePlan& stage : report.stages) {
    const StateBytes& state = stage.state;
    const std::string own = fmt::format("{} to {}", stage.stage * ranks, (stage.stage + 1) * ranks - 1);
    text += fmt::format("{}{:>5}  {:<13}  {:<{}}  {:>14}  {:>10}  {:>10}  {:>10}  {:>10}  {:>11}  {:>10}\n", in_front,
                        stage.stage, ranks == 1 ? std::to_string(stage.stage) : own,
                        layers_text(stage.parts, recipe.model.layers), width, grouped(stage.parameters),
                        bytes_text(state.weights), bytes_text(state.gradients), bytes_text(state.optimizer),
                        bytes_text(state.scratch), report.activations_known ? bytes_text(stage.activations) : "unknown",
                        bytes_text(state.total() + stage.activations));
  }
  return text;
}

}  // namespace espalier::app
