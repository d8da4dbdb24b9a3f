#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/config.hpp"
#include "espalier/facts.hpp"
#include "model/choices.hpp"
#include "train/batch_schedule.hpp"
#include "train/rate_schedule.hpp"

namespace espalier::app {

/// The recipe after all checks: what the rest of the app compiles against. docs/recipe.md explains every key.
/// Relative paths start at the working directory of the program (`Recipe::base_dir`).

enum class Positions : std::uint8_t { alibi, learned };
enum class NanPolicy : std::uint8_t { skip, stop };
enum class GuardAction : std::uint8_t { stop, repair };

/// Names of what is built in, as a recipe's `plugin` key spells them.
inline constexpr std::string_view kBuiltInBackend = "reference";
inline constexpr std::string_view kBuiltInStrategy = "none";
inline constexpr std::string_view kBuiltInDataset = "synthetic";
inline constexpr std::string_view kBuiltInTokenizer = "bytes";

/// A table that names a plugin: `plugin` and `device` are the host's, everything else in `options` is the plugin's own.
struct PluginChoice {
  std::string kind;    ///< kKind of the interface: "optimizer"
  std::string path;    ///< of the table in the recipe: "parallel.data"
  std::string plugin;  ///< name or path of a library; one of the built-in names
  std::string device = "cpu";
  /// Without the host's keys. After the check against Factory::options it holds every declared option (defaults filled
  /// in).
  ConfigTable options;
  ConfigSource source;  ///< of the key `plugin`

  /// Name of the library to look for: with device "cuda" a plugin of its own, "kernels_fused_cuda".
  std::string library_name() const { return device == "cpu" ? plugin : plugin + "_" + device; }
};

struct ModelSection {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn = 0;         ///< default 4 · hidden
  std::int64_t vocab_size = 0;  ///< logical rows of the embedding
  std::int64_t seq_length = 0;
  std::int64_t positions = 0;  ///< rows of learned positions; default seq_length; 0 with ALiBi
  Positions position = Positions::alibi;
  bool embedding_norm = true;
  bool tied_head = true;
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double layernorm_epsilon = 1e-5;
  double init_method_std = 0;  ///< default sqrt(1 / (3 · hidden))
  EmbeddingInit embedding_init = EmbeddingInit::normal;
  std::optional<std::int64_t> expect_params;
};

/// Weight decay goes to matrices only; these patterns (`*` matches any text) over logical names change that. `never`
/// wins.
struct DecayRules {
  std::vector<std::string> never;   ///< train.no_weight_decay
  std::vector<std::string> always;  ///< train.weight_decay_also
};
/// Whether `name` is what `pattern` says: `*` stands for any text, also none; everything else for itself.
bool matches_pattern(std::string_view pattern, std::string_view name);
/// @param matrix  whether the parameter has two dimensions.
bool takes_weight_decay(const DecayRules& rules, std::string_view name, bool matrix);

struct TrainSection {
  std::uint64_t seed = 1234;
  std::int64_t train_samples = 0;  ///< of the whole run; the last incomplete batch is not trained
  std::int64_t train_steps = 0;    ///< derived: steps of the whole run
  BatchSpec batch;
  RateSpec rate;
  double clip_grad = 1.0;  ///< global norm; 0: no clipping
  Recompute recompute = Recompute::none;
  double exit_duration_in_mins = 0;  ///< 0: no limit
  std::int64_t exit_interval = 0;    ///< stop, with the state saved, after a step divisible by this; 0: never
  NanPolicy nan_policy = NanPolicy::skip;
  std::int64_t max_skipped = 0;  ///< consecutive skipped steps before the run ends with exit code 7; 0: no limit
  bool eod_mask_loss = false;        ///< what follows an end-of-document id does not count in the loss
  int threads = 0;               ///< compute threads of a rank; 0: the rank's share of the allowed cores
  DecayRules weight_decay;
};

struct BackendSection {
  PluginChoice choice;
  std::map<std::string, std::string> overrides;  ///< kernel family ("attention") → provider ("reference")
};

/// One strategy. data.size is 0 when the recipe leaves it to the world.
struct StrategySection {
  PluginChoice choice;
  int size = 1;
};

struct EvalSection {
  std::int64_t interval = 0;  ///< steps; 0: only at_start and at_end
  std::int64_t samples = 0;   ///< of each set; 0: all
  bool at_start = false;
  bool at_end = false;
};

struct CheckpointSection {
  std::string save;                ///< folder; default run.dir/checkpoints
  std::string load = "auto";       ///< "auto": newest in `save` if there is one; "none"; or a path
  std::string load_optimizer;      ///< "strict", "convert" or "skip"
  std::string load_model;          ///< weights where "auto" finds no checkpoint; "": initial ones
  std::int64_t save_interval = 0;  ///< steps; 0: only at the end and when interrupted; -1: none
  std::int64_t keep = 0;           ///< newest ones kept; 0: all
  bool async = true;
};

struct LogSection {
  std::int64_t interval = 1;   ///< steps between log lines
  std::string file;            ///< default run.dir/train.log
  std::string metrics;         ///< default run.dir/metrics.jsonl
  std::string level = "info";  ///< debug, info, warning, error
};

struct GuardSection {
  std::int64_t interval = 100;  ///< steps between comparisons of what ranks hold alike; 0: none
  GuardAction action = GuardAction::stop;
};

struct DebugSection {
  bool compare_recipes = true;
  bool check_collectives = false;
  double collective_timeout = 0;  ///< seconds; 0: none
};

/// Where one value of the effective recipe came from.
struct EffectiveKey {
  std::string key;    ///< "train.lr"
  std::string value;  ///< TOML text
  ConfigSource source;
  std::string consumer;  ///< "trainer", or the plugin
  std::string note;      ///< "derived: …"
};

struct Recipe {
  std::string file;      ///< as given
  std::string base_dir;  ///< where relative paths start: the working directory
  std::string run_dir;   ///< run.dir
  ModelSection model;
  TrainSection train;
  PluginChoice optimizer;
  PluginChoice data;
  PluginChoice tokenizer;
  BackendSection backend;
  StrategySection tensor, pipeline, data_parallel;
  EvalSection eval;
  CheckpointSection checkpoint;
  LogSection log;
  GuardSection guard;
  DebugSection debug;
  std::vector<std::string> plugin_search_path;
  Grid grid;                          ///< of the world the recipe was checked for; ranks are 0: see grid_of
  std::vector<std::string> warnings;  ///< what looks like a mistake without being an error: log it
  std::vector<std::string> unchecked;  ///< what this machine lacks to check it (RecipeRequest::device_elsewhere)
  std::vector<EffectiveKey> keys;
  std::string effective;  ///< TOML text that reproduces the run
};

/// Exact number of logical parameters. Source: h(12h + 13)L + Vh + 4h for BLOOM's shape (BLOOM-176B: 176,247,271,424).
std::int64_t count_parameters(const ModelSection& model);
/// tokenizer_vocab is vocab_size until the tokenizer is known.
ModelShape shape_of(const ModelSection& model);
/// The grid with this rank's places. Order: tensor innermost, then data, pipeline outermost.
Grid grid_of(const Recipe& recipe, int rank);
/// What plugins may know. Precision is the optimizer's and comes later.
RunFacts facts_of(const Recipe& recipe, int rank);

}  // namespace espalier::app
