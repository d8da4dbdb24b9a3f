#include "ranks/matrix/cases.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kStages[] = {0, 1};
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

}  // namespace

std::string MatrixCase::name() const {
  return "tensor " + std::to_string(tensor) + " pipeline " + std::to_string(pipeline) + " data " +
         std::to_string(data) + " zero " + std::to_string(zero) + " " + schedule + (sequence_parallel ? " sp" : "") +
         (tied ? "" : " untied") + (one_micro_batch ? " one micro-batch" : "");
}

std::string MatrixCase::bit_class() const {
  const char* reduced = one_micro_batch ? "any" : zero <= 1 ? "0 or 1" : "2 or 3";
  const char* stages = !tied ? "untied, any" : pipeline == 1 ? "tied, 1" : "tied, 2 or more";
  return "tensor " + std::to_string(tensor) + (sequence_parallel ? " sp" : "") + " data " + std::to_string(data) +
         " zero " + reduced + " pipeline " + stages;
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
      }
    }
  }
  return list;
}

std::vector<MatrixCase> fast_matrix() {
  std::vector<MatrixCase> list;
  std::size_t turn = 0;
  for (MatrixCase at : grids()) {
    at.sequence_parallel = at.tensor > 1 && turn % 2 == 0;
    const auto order = schedules(at);
    for (const int zero : kStages) {
      at.zero = zero;
      at.schedule = order[turn++ % order.size()];
      list.push_back(at);
    }
    turn += 1;
    MatrixCase untied = at;
    untied.tied = false;
    if (at.tensor == 1) list.push_back(untied);
    if (at.data == 1 || at.ranks() > 4) continue;
    for (const int zero : kStages) {
      MatrixCase single = at;
      single.one_micro_batch = true;
      single.zero = zero;
      list.push_back(single);
    }
  }
  return list;
}

}  // namespace espalier::testing_support
