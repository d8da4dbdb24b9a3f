// The layouts of the matrix: which there are, and which of them must be equal to the bit.
#pragma once

#include <string>
#include <vector>

namespace espalier::testing_support {

struct MatrixCase {
  int tensor = 1, pipeline = 1, data = 1;
  int zero = 1;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  bool tied = true;
  bool gpt2 = false;             ///< learned positions, no norm behind the embedding; the head is tied
  bool one_micro_batch = false;  ///< a step in one micro-batch a rank, instead of one sample each

  int ranks() const { return tensor * pipeline * data; }
  std::string name() const;
  /// Cases of one class give the same bits: any schedule; ZeRO 0 and 1, 2 and 3, all with one micro-batch; any number
  /// of stages with an untied head, any from two on with a tied one (docs/architecture.md section 8).
  std::string bit_class() const;
};

/// Every tensor x pipeline x data of {1, 2, 4} up to 8 ranks, and three with a 3; times ZeRO stage, schedule and
/// sequence parallelism; then all of them with one micro-batch, with an untied head, and in GPT-2's shape.
std::vector<MatrixCase> whole_matrix();
/// A part of it: every layout at every ZeRO stage, schedules and sequence parallelism by turns; any two settings of
/// stages, ZeRO stage, schedule, sequence parallelism, shape and micro-batches meet.
std::vector<MatrixCase> fast_matrix();

/// Runs the cases on the first ranks of an 8-rank world and compares all with one rank (cases X03, X13), and classes to
/// the bit.
void run_matrix(const std::vector<MatrixCase>& cases);

}  // namespace espalier::testing_support
