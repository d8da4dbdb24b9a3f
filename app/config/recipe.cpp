#include "config/recipe.hpp"

#include <algorithm>

#include "espalier/error.hpp"

namespace espalier::app {

namespace {

bool any_matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t from = star; from <= name.size(); ++from) {
    if (matches_pattern(rest, name.substr(from))) return true;
  }
  return false;
}

bool takes_weight_decay(const DecayRules& rules, std::string_view name, bool matrix) {
  if (any_matches(rules.never, name)) return false;
  return matrix || any_matches(rules.always, name);
}

std::int64_t count_parameters(const ModelSection& model) {
  const std::int64_t h = model.hidden, f = model.ffn;
  const std::int64_t norms = 4 * h;  // two of a block
  const std::int64_t attention = 4 * h * h + 4 * h;
  const std::int64_t mlp = 2 * h * f + f + h;
  std::int64_t count = model.layers * (norms + attention + mlp) + model.vocab_size * h + 2 * h;  // and the final norm
  if (model.embedding_norm) count += 2 * h;
  if (model.position == Positions::learned) count += model.positions * h;
  if (!model.tied_head) count += model.vocab_size * h;
  return count;
}

ModelShape shape_of(const ModelSection& model) {
  ModelShape shape;
  shape.layers = model.layers;
  shape.hidden = model.hidden;
  shape.heads = model.heads;
  shape.ffn = model.ffn;
  shape.vocab = model.vocab_size;
  shape.tokenizer_vocab = model.vocab_size;
  shape.seq_length = model.seq_length;
  shape.positions = model.position == Positions::learned ? model.positions : 0;
  shape.embedding_norm = model.embedding_norm;
  shape.tied_head = model.tied_head;
  shape.attention_dropout = model.attention_dropout;
  shape.hidden_dropout = model.hidden_dropout;
  shape.norm_eps = model.layernorm_epsilon;
  return shape;
}

Grid grid_of(const Recipe& recipe, int rank) {
  ESPALIER_ASSERT(rank >= 0 && rank < recipe.grid.world());
  Grid grid = recipe.grid;
  grid.tensor_rank = rank % grid.tensor;
  grid.data_rank = rank / grid.tensor % grid.data;
  grid.pipeline_rank = rank / (grid.tensor * grid.data);
  return grid;
}

RunFacts facts_of(const Recipe& recipe, int rank) {
  RunFacts facts;
  facts.model = shape_of(recipe.model);
  facts.grid = grid_of(recipe, rank);
  facts.seed = recipe.train.seed;
  facts.recipe_dir = recipe.base_dir;
  facts.run_dir = recipe.run_dir;

  const TrainSection& train = recipe.train;
  BatchPlan& batch = facts.batch;
  batch.train_samples = train.train_samples;
  batch.global_batch = train.batch.global_batch;
  for (const BatchPhase& phase : BatchSchedule(train.batch, recipe.grid.data).phases(train.train_samples)) {
    const std::int64_t pair[] = {phase.batch.micro_batch, phase.batch.micro_batches};
    bool known = false;
    for (std::size_t i = 0; i < batch.micro_batches.size(); i += 2) {
      known = known || (batch.micro_batches[i] == pair[0] && batch.micro_batches[i + 1] == pair[1]);
    }
    if (!known) batch.micro_batches.insert(batch.micro_batches.end(), pair, pair + 2);
  }
  batch.eval_interval = recipe.eval.interval;
  batch.eval_samples = recipe.eval.samples;
  batch.eval_runs = recipe.eval.interval > 0 ? train.train_steps / recipe.eval.interval : 0;
  // The evaluation of at_end is the last of these where the interval divides the run.
  if (recipe.eval.at_end && (recipe.eval.interval == 0 || train.train_steps % recipe.eval.interval != 0))
    ++batch.eval_runs;
  if (recipe.eval.at_start) ++batch.eval_runs;
  return facts;
}

}  // namespace espalier::app
