#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "checkpoint/reader.hpp"
#include "checkpoint/store.hpp"
#include "commands/commands.hpp"
#include "commands/numerics_pass.hpp"
#include "config/open.hpp"
#include "config/source.hpp"
#include "interop/compare.hpp"
#include "interop/huggingface.hpp"
#include "session/session.hpp"
#include "session/threads_per_rank.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"--model", ArgType::string, "a Hugging Face BLOOM folder, a checkpoint (step_N), or a run's folder", true, nullptr, false, "DIR"},
    {"--batch", ArgType::string, "tokens: input_ids, I64 [batch, seq + 1]", true, nullptr, false, "FILE.safetensors"},
    {"--out", ArgType::string, "written: logits, loss and grad.<Hugging Face name>, FP32", true, nullptr, false,
     "FILE.safetensors"},
    {"--recipe", ArgType::string,
     "backend, precision and layout; without it FP32 with the reference kernels on one rank", false, nullptr, false,
     "FILE"},
    kSetArg,
    {"--compare", ArgType::string, "print the largest error of each tensor against this file", false, nullptr, false,
     "FILE.safetensors"},
    {"--tolerance", ArgType::number,
     "with --compare: exit code 7 when an error exceeds this times the rms of its tensor", false, nullptr, false, "X"},
};

/// The model to be run: one of the two.
struct Source {
  std::optional<HuggingFaceFolder> folder;
  std::optional<CheckpointReader> checkpoint;
  const ModelShape& shape() const { return folder ? folder->shape() : checkpoint->manifest().model; }
};

Source open_source(const std::string& path) {
  Source source;
  if (is_huggingface_folder(path)) {
    source.folder.emplace(path);
    return source;
  }
  CheckpointStore::Found found;
  try {
    found = find_checkpoint(path);
  } catch (const IoError& error) {
    throw IoError(std::string(error.what()) + "; a Hugging Face folder has a config.json, and there is none either");
  }
  source.checkpoint.emplace(found.path);
  return source;
}

/// What would be ignored, or would destroy what it is compared with.
void check_arguments(const Args& args) {
  if (!args.strings("--set").empty() && !args.has("--recipe")) {
    throw ConfigError("command line: --set: changes a recipe, and none is given (--recipe)");
  }
  if (args.has("--tolerance")) {
    if (!args.has("--compare")) throw ConfigError("command line: --tolerance: there is nothing to compare with (--compare)");
    if (args.number("--tolerance") < 0) throw ConfigError("command line: --tolerance: must be 0 or more");
  }
  for (const char* input : {"--batch", "--compare"}) {
    std::error_code error;
    if (args.has(input) && std::filesystem::equivalent(args.string(input), args.string("--out"), error)) {
      throw ConfigError(std::string("command line: --out: is the file of ") + input + ", which would be overwritten");
    }
  }
}

/// FP32 with the reference kernels on one rank.
OpenRecipe plain_recipe(int ranks) {
  if (ranks > 1) {
    throw ConfigError(fmt::format("--recipe: {} ranks need a recipe that says how they share the model", ranks));
  }
  OpenRecipe opened;
  opened.plugins = make_plugin_host("", {});
  const auto choose = [](PluginChoice& choice, const char* kind, const char* path, std::string_view plugin) {
    choice.kind = kind;
    choice.path = path;
    choice.plugin = std::string(plugin);
  };
  Recipe& recipe = opened.recipe;
  recipe.train.batch.global_batch = recipe.train.batch.micro_batch = 1;
  choose(recipe.optimizer, kKind<Optimizer>, "optimizer", "optim_fp32");
  choose(recipe.backend.choice, kKind<Backend>, "backend", kBuiltInBackend);
  choose(recipe.tensor.choice, kKind<TensorParallel>, "parallel.tensor", kBuiltInStrategy);
  choose(recipe.pipeline.choice, kKind<PipelineParallel>, "parallel.pipeline", kBuiltInStrategy);
  choose(recipe.data_parallel.choice, kKind<DataParallel>, "parallel.data", kBuiltInStrategy);
  std::vector<ConfigProblem> problems;
  check_options(recipe.optimizer.options, "optimizer", opened.plugins->load("optim_fp32").options<Optimizer>(), {},
                problems);
  throw_if_any(problems);
  return opened;
}

OpenRecipe open(const Args& args, Communicator& world) {
  if (!args.has("--recipe")) return plain_recipe(world.size());
  RecipeRequest request;
  request.file = args.string("--recipe");
  request.overrides = args.strings("--set");
  if (const char* text = std::getenv(kSetVariable)) request.environment = text;
  return open_recipe(request, world);
}

/// The recipe says how to compute; what to compute is the model's own, without dropout.
void take_model(Recipe& recipe, const ModelShape& shape, std::int64_t seq) {
  ModelSection& model = recipe.model;
  model.layers = shape.layers;
  model.hidden = shape.hidden;
  model.heads = shape.heads;
  model.ffn = shape.ffn;
  model.vocab_size = shape.vocab;
  model.seq_length = seq;
  model.positions = shape.positions;
  model.position = shape.positions > 0 ? Positions::learned : Positions::alibi;
  model.embedding_norm = shape.embedding_norm;
  model.tied_head = shape.tied_head;
  model.layernorm_epsilon = shape.norm_eps;
  model.attention_dropout = model.hidden_dropout = 0;
  model.expect_params.reset();
}

void load(const Source& source, Session& session) {
  DataParallel& data = session.data_parallel();
  if (source.folder) {
    phase(session.world(), [&] { source.folder->check(session.parameters()); });
    load_weights(*source.folder, session.executor().parameters(), data, session.backend());
    return;
  }
  phase(session.world(), [&] {
    source.checkpoint->load(session.parameters().all(), session.executor().parameters(), data.state(),
                            LoadOptimizer::skip, session.backend().device(), session.stream());
  });
  data.refresh(session.stream());
}

int numerics(Communicator& world, const Args& args) {
  prepare_openmp(threads_per_rank(0, detect_launch().local_size));  // before any plugin brings OpenMP along
  start_log(world.rank(), world.size(), LogLevel::info);
  std::optional<Source> source;
  std::optional<SafetensorsFile> reference;
  NumericsBatch batch;
  OpenRecipe opened;
  alike([&] { check_arguments(args); });
  phase(world, [&] {
    source = open_source(args.string("--model"));
    const ModelShape& shape = source->shape();
    batch = read_numerics_batch(SafetensorsFile(args.string("--batch")),
                                shape.tokenizer_vocab > 0 ? shape.tokenizer_vocab : shape.vocab);
    if (args.has("--compare")) reference.emplace(args.string("--compare"));
  });
  opened = alike([&] { return open(args, world); });
  take_model(opened.recipe, source->shape(), batch.seq);
  Session::Needs needs;
  needs.data = needs.text = false;
  needs.tokenizer_vocab = source->shape().tokenizer_vocab;
  Session session(world, std::move(opened.recipe), *opened.plugins, needs);
  run_numerics(session, batch, args.string("--out"), [&] { load(*source, session); });

  phase(world, [&] {
    if (!reference) return;
    const auto errors = compare_numerics(SafetensorsFile(args.string("--out")), *reference);
    if (world.rank() == 0) print(std::cout, errors);
    if (!args.has("--tolerance")) return;
    const double tolerance = args.number("--tolerance");
    const TensorError& worst = errors.front();
    if (!worst.above(tolerance)) return;
    throw NumericsError(fmt::format("{}: {} {}, above the tolerance {:g}", args.string("--compare"), worst.name,
                                    worst.problem.empty() ? fmt::format("is off by {:.3e} of its rms", worst.relative())
                                                          : "cannot be compared (" + worst.problem + ")",
                                    tolerance));
  });
  return static_cast<int>(ExitCode::ok);
}

int run(const Args& args) {
  const std::unique_ptr<Communicator> world = make_world_communicator();
  return run_on_world(*world, [&] { return numerics(*world, args); });
}

}  // namespace

const Command kNumerics{
    "numerics", "one forward and backward of a model, written to a file and compared",
    "How to trust a backend, a layout or an export: the same model and batch give the same numbers, within rounding.\n"
    "  trainer numerics --model bloom-560m --batch batch.safetensors --out plain.safetensors\n"
    "  mpiexec -n 2 trainer numerics --model bloom-560m --batch batch.safetensors --out mine.safetensors \\\n"
    "      --recipe recipe.toml --compare plain.safetensors --tolerance 1e-4\n"
    "Of the recipe, what counts is backend, optimizer (its precision), strategies and threads; model and data are "
    "those given here.",
    kArgs, run};

}  // namespace espalier::app
