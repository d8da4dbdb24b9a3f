#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/backend.hpp"

namespace espalier {

/// The model's shape. Field terms as in docs/vocabulary.md.
struct ModelShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn = 0;               ///< 4 · hidden in BLOOM
  std::int64_t vocab = 0;             ///< logical rows of the embedding (BLOOM: 250,880)
  std::int64_t tokenizer_vocab = 0;   ///< ids at and above it are refused in data and masked in the loss (BLOOM: 250,680)
  std::int64_t seq_length = 0;
  std::int64_t positions = 0;         ///< rows of learned positions; 0: ALiBi
  bool embedding_norm = true;
  bool tied_head = true;
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double norm_eps = 1e-5;

  std::int64_t head_dim() const { return heads == 0 ? 0 : hidden / heads; }
};

/// Ranks of the three groups; world = tensor · data · pipeline, tensor innermost, pipeline outermost.
struct Grid {
  int tensor = 1, pipeline = 1, data = 1;
  int tensor_rank = 0, pipeline_rank = 0, data_rank = 0;
  int world() const { return tensor * pipeline * data; }
};

/// What of the batch plan strategies and datasets need to know.
struct BatchPlan {
  std::int64_t train_samples = 0;     ///< of the whole run
  std::int64_t global_batch = 0;      ///< final
  std::vector<std::int64_t> micro_batches;  ///< every (micro-batch size, count) the ramp will reach, flattened in pairs
  std::int64_t eval_interval = 0;     ///< steps; 0: no evaluation
  std::int64_t eval_samples = 0;      ///< samples of one evaluation of one set; 0: the whole set
  std::int64_t eval_runs = 0;         ///< evaluations in the whole run
};

/// What a plugin may know of the run besides its own options. Read-only.
struct RunFacts {
  ModelShape model;
  Grid grid;
  BatchPlan batch;
  std::uint64_t seed = 1234;
  Precision precision;
  std::string recipe_dir;             ///< relative paths of the recipe start here
  std::string run_dir;                ///< where the run writes
};

}  // namespace espalier
