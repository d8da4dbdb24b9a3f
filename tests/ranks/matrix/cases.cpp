#include "ranks/matrix/cases.hpp"

#include <set>

namespace espalier::testing_support {
namespace {

constexpr int kStages[] = {0, 1, 2, 3};
constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

std::vector<MatrixCase> grids() {
  std::vector<MatrixCase> list;
  const auto add = [&](int tensor, int pipeline, int data) {
    MatrixCase grid;
    grid.tensor = tensor;
    grid.pipeline = pipeline;
    grid.data = data;
    list.push_back(grid);
  };
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int data : {1, 2, 4}) {
        if (tensor * pipeline * data <= 8) add(tensor, pipeline, data);
      }
    }
  }
  add(1, 1, 3);
  add(1, 3, 1);
  add(3, 1, 2);
  return list;
}

std::vector<std::string> schedules(const MatrixCase& grid) {
  if (grid.pipeline == 1) return {"1f1b"};
  return {std::begin(kSchedules), std::end(kSchedules)};
}

std::vector<bool> sequence(const MatrixCase& grid) {
  if (grid.tensor == 1) return {false};
  return {false, true};
}

/// Pairs of settings that a case has.
std::vector<std::string> pairs_of(const MatrixCase& at) {
  const std::string sp = at.sequence_parallel ? " sp" : "", zero = "zero " + std::to_string(at.zero);
  const std::string stages = "pipeline " + std::to_string(at.pipeline);
  const std::string shape = at.gpt2 ? " gpt2" : at.tied ? "" : " untied";
  return {"tensor " + std::to_string(at.tensor) + sp + (at.gpt2 ? " gpt2" : ""),
          zero + sp,
          at.schedule + sp,
          zero + " " + at.schedule,
          zero + (at.one_micro_batch ? " one micro-batch" : ""),
          zero + shape,
          stages + " " + at.schedule,
          stages + shape};
}

}  // namespace

std::string MatrixCase::name() const {
  return "tensor " + std::to_string(tensor) + " pipeline " + std::to_string(pipeline) + " data " +
         std::to_string(data) + " zero " + std::to_string(zero) + " " + schedule + (sequence_parallel ? " sp" : "") +
         (tied ? "" : " untied") + (gpt2 ? " gpt2" : "") + (one_micro_batch ? " one micro-batch" : "");
}

std::string MatrixCase::bit_class() const {
  const char* reduced = one_micro_batch ? "any" : zero <= 1 ? "0 or 1" : "2 or 3";
  const char* stages = !tied ? "untied, any" : pipeline == 1 ? "tied, 1" : "tied, 2 or more";
  return "tensor " + std::to_string(tensor) + (sequence_parallel ? " sp" : "") + " data " + std::to_string(data) +
         " zero " + reduced + " pipeline " + stages + (gpt2 ? " gpt2" : "");
}

std::vector<MatrixCase> whole_matrix() {
  std::vector<MatrixCase> list;
  for (MatrixCase at : grids()) {
    for (const int zero : kStages) {
      for (const bool sp : sequence(at)) {
        at.zero = zero;
        at.sequence_parallel = sp;
        for (const std::string& schedule : schedules(at)) {
          at.schedule = schedule;
          list.push_back(at);
        }
        at.schedule = at.pipeline == 1 ? "1f1b" : "zero_bubble";
        MatrixCase single = at;
        single.one_micro_batch = true;
        if (at.data > 1) list.push_back(single);
        MatrixCase untied = at;
        untied.tied = false;
        list.push_back(untied);
        MatrixCase gpt2 = at;
        gpt2.gpt2 = true;
        list.push_back(gpt2);
      }
    }
  }
  return list;
}

std::vector<MatrixCase> fast_matrix() {
  std::vector<MatrixCase> list;
  int grid = 0;
  for (MatrixCase at : grids()) {
    const auto order = schedules(at);
    for (const int zero : kStages) {
      at.zero = zero;
      at.sequence_parallel = at.tensor > 1 && (grid + zero / 2) % 2 == 1;
      at.schedule = order[static_cast<std::size_t>(grid + zero) % order.size()];
      list.push_back(at);
    }
    ++grid;
    MatrixCase untied = at;
    untied.tied = false;
    if (at.tensor == 1) list.push_back(untied);
    if (at.ranks() == 8) {
      MatrixCase gpt2 = at;
      gpt2.gpt2 = true;
      gpt2.zero = kStages[grid % 4];
      list.push_back(gpt2);
    }
    if (at.data == 1 || at.ranks() > 4) continue;
    for (const int zero : kStages) {
      MatrixCase single = at;
      single.one_micro_batch = true;
      single.zero = zero;
      list.push_back(single);
    }
  }
  std::set<std::string> found;
  const auto adds_a_pair = [&](const MatrixCase& one) {
    const std::size_t before = found.size();
    for (const std::string& pair : pairs_of(one)) found.insert(pair);
    return found.size() > before;
  };
  for (const MatrixCase& one : list) adds_a_pair(one);
  for (const MatrixCase& one : whole_matrix()) {
    if (adds_a_pair(one)) list.push_back(one);
  }
  return list;
}

}  // namespace espalier::testing_support
