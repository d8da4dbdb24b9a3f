#include <fmt/format.h>

#include <cmath>

#include "config/checks.hpp"

namespace espalier::app {

void fill_model(Tables& tables, Recipe& recipe) {
  ModelSection& model = recipe.model;
  model.layers = tables.integer("model.layers");
  model.hidden = tables.integer("model.hidden");
  model.heads = tables.integer("model.heads");
  model.ffn = tables.integer("model.ffn", 4 * model.hidden);
  model.vocab_size = tables.integer("model.vocab_size");
  model.seq_length = tables.integer("model.seq_length");
  model.position = tables.string("model.position") == "learned" ? Positions::learned : Positions::alibi;
  if (model.position == Positions::learned) {
    model.positions = tables.integer("model.positions", model.seq_length);
    if (tables.given("model.positions") && model.positions < model.seq_length) {
      tables.complain("model.positions", fmt::format("{} learned positions are too few for samples of {} tokens",
                                                     model.positions, model.seq_length));
    }
  } else if (tables.given("model.positions")) {
    tables.complain("model.positions", "is for position = \"learned\"; ALiBi has no table");
  }
  model.embedding_norm = tables.boolean("model.embedding_norm");
  model.tied_head = tables.boolean("model.tied_head");
  model.attention_dropout = tables.number("model.attention_dropout");
  model.hidden_dropout = tables.number("model.hidden_dropout");
  model.layernorm_epsilon = tables.number("model.layernorm_epsilon", 1e-5);
  // BLOOM's rule: 0.0048 at hidden 14336.
  model.init_method_std = tables.number(
      "model.init_method_std", model.hidden > 0 ? std::sqrt(1.0 / (3.0 * static_cast<double>(model.hidden))) : 0.0);
  model.embedding_init =
      tables.string("model.embedding_init") == "xavier_uniform" ? EmbeddingInit::xavier_uniform : EmbeddingInit::normal;
  if (tables.has("model.expect_params")) model.expect_params = tables.integer("model.expect_params");

  if (tables.has("model.hidden") && tables.has("model.heads") && model.hidden % model.heads != 0) {
    tables.complain("model.heads", fmt::format("{} heads do not divide hidden {}", model.heads, model.hidden));
  }
  const bool shape = tables.has("model.layers") && tables.has("model.hidden") && tables.has("model.vocab_size") &&
                     tables.has("model.seq_length") && model.ffn > 0;
  if (shape && model.expect_params && *model.expect_params != count_parameters(model)) {
    tables.complain(
        "model.expect_params",
        fmt::format("expected {} parameters, the model has {} (layers {}, hidden {}, ffn {}, vocab_size {})",
                    *model.expect_params, count_parameters(model), model.layers, model.hidden, model.ffn,
                    model.vocab_size));
  }
}

void fill_grid(Tables& tables, int world, bool add_plugins, Recipe& recipe) {
  Grid& grid = recipe.grid;
  grid = Grid{};
  grid.tensor = static_cast<int>(tables.integer("parallel.tensor.size", 1));
  grid.pipeline = static_cast<int>(tables.integer("parallel.pipeline.size", 1));
  const auto data = static_cast<int>(tables.integer("parallel.data.size", 0));
  const std::int64_t model_ranks = std::int64_t{grid.tensor} * grid.pipeline;

  if (world == 0) {
    grid.data = data > 0 ? data : 1;
    const std::int64_t share =
        tables.integer("train.micro_batch_size") * tables.integer("train.gradient_accumulation_steps");
    const std::int64_t global = tables.integer("train.global_batch_size");
    // All three batch numbers say how many replicas the recipe is meant for.
    if (data == 0 && share > 0 && global > 0 && global % share == 0 && global / share < 1'000'000) {
      grid.data = static_cast<int>(global / share);
    }
    if (model_ranks * grid.data > 10'000'000) {
      tables.complain("parallel.tensor.size", fmt::format("a world of {} ranks", model_ranks * grid.data));
      grid = Grid{};
    }
  } else if (world % model_ranks != 0) {
    const char* const key = world % grid.tensor == 0 ? "parallel.pipeline.size" : "parallel.tensor.size";
    tables.complain(key, fmt::format("world {} is not a multiple of tensor {} × pipeline {}", world, grid.tensor, grid.pipeline));
  } else {
    grid.data = static_cast<int>(world / model_ranks);
    if (data > 0 && data != grid.data) {
      tables.complain("parallel.data.size",
                      fmt::format("{} ≠ {} = world {} / (tensor {} × pipeline {}); leave it out to take "
                                  "what remains of the world",
                                  data, grid.data, world, grid.tensor, grid.pipeline));
    }
  }

  const ModelSection& model = recipe.model;
  if (tables.has("model.heads") && model.heads % grid.tensor != 0) {
    tables.complain("parallel.tensor.size",
                    fmt::format("{} heads cannot be split over tensor {}", model.heads, grid.tensor));
  }
  if (model.ffn > 0 && model.ffn % grid.tensor != 0) {
    tables.complain("parallel.tensor.size",
                    fmt::format("ffn {} cannot be split over tensor {}", model.ffn, grid.tensor));
  }
  if (tables.has("model.layers") && grid.pipeline > model.layers) {
    tables.complain("parallel.pipeline.size",
                    fmt::format("{} layers leave a stage of pipeline {} empty", model.layers, grid.pipeline));
  }
  const auto needs = [&](const char* table, int size, const char* plugin) {
    const std::string key = std::string(table) + ".plugin";
    if (size > 1 && tables.string(key) == kBuiltInStrategy) {
      if (add_plugins) return tables.put(key, plugin);
      tables.complain(key, fmt::format("a size of {} needs a plugin, as plugin = \"{}\"", size, plugin));
    }
  };
  needs("parallel.tensor", grid.tensor, "parallel_tensor");
  needs("parallel.pipeline", grid.pipeline, "parallel_pipeline");
  needs("parallel.data", grid.data, "parallel_zero");
  // The tied pair and what a tensor group holds in copies are summed, and counted once, by the data strategy.
  if (grid.data == 1 && model_ranks > 1 && tables.string("parallel.data.plugin") == kBuiltInStrategy) {
    if (add_plugins) return tables.put("parallel.data.plugin", "parallel_zero");
    tables.complain("parallel.data.plugin",
                    fmt::format("tensor {} × pipeline {} needs a plugin that sums over these groups, as plugin = "
                                "\"parallel_zero\"",
                                grid.tensor, grid.pipeline));
  }
}

}  // namespace espalier::app
