#pragma once

#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"
#include "espalier/reason.hpp"

namespace espalier::parallel_tensor {

/// Ranks of a tensor group as the pure functions below see them.
struct Part {
  int size = 1;
  int rank = 0;
  bool sequence_parallel = false;
};

/// A rank's piece of a parameter. Column-parallel (split by output, dimension 0): QKV, whose rows are ordered by head,
/// so that equal parts are whole heads, and the first MLP matrix, with their biases. Row-parallel (split by input,
/// dimension 1): attention output, second MLP matrix. Embedding and untied head by vocabulary, in parts of
/// ceil(vocab / size) rows, the last ones padded. Everything else is whole; under sequence parallelism partial, since
/// each rank sees its own tokens only.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198 for the sequence.
Placement place(const Parameter& parameter, const Part& part);

/// Why the model or its batches cannot be cut, naming what does not divide; or nothing.
Reason accepts(const ModelShape& model, const BatchPlan& batch, const Part& part);

}  // namespace espalier::parallel_tensor
