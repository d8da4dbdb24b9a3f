#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <optional>

#include "checkpoint/store.hpp"
#include "commands/commands.hpp"
#include "config/open.hpp"
#include "config/toml.hpp"
#include "interop/byte_tokenizer_files.hpp"
#include "interop/checkpoint_weights.hpp"
#include "interop/checkpoint_writer.hpp"
#include "interop/converted_recipe.hpp"
#include "interop/huggingface.hpp"
#include "interop/huggingface_writer.hpp"
#include "interop/tokenizer_files.hpp"
#include "program.hpp"
#include "session/builtins.hpp"
#include "session/lost_file.hpp"
#include "text/byte_tokenizer.hpp"
#include "text/progress.hpp"
#include "text/tokenizers/open.hpp"
#include "train/stop.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

constexpr ArgSpec kArgs[] = {
    {"FROM", ArgType::string,
     "a Hugging Face folder (config.json and safetensors), a checkpoint (step_N), a folder of checkpoints, or a run's "
     "folder",
     true},
    {"TO", ArgType::string, "folder to be made: of a Hugging Face model, or of checkpoints (gets step_0)", true},
    {"--to", ArgType::string, "what is written; auto: the other of the two", false, "auto", false,
     "auto|huggingface|checkpoint"},
    {"--dtype", ArgType::string, "type of a Hugging Face model's weights; keep: as they are (a checkpoint's are f32)",
     false, "keep", false, "keep|f32|bf16|f16"},
    {"--shard-size", ArgType::string, "largest file of a Hugging Face model: bytes, or with MB, GB, MiB, GiB", false,
     "5GB", false, "SIZE"},
    {"--rows", ArgType::string,
     "of the embedding, from a checkpoint: the tokenizer's, since other programs' softmax runs over every row, or all "
     "logical ones",
     false, "tokenizer", false, "tokenizer|logical"},
    {"--tokenizer", ArgType::string,
     "folder of the tokenizer's files that travel along; default: those beside FROM, or of the checkpoint's recipe",
     false, nullptr, false, "DIR"},
    {"--recipe", ArgType::string, "to a checkpoint: the recipe saved with it; its model must be that of FROM", false,
     nullptr, false, "FILE"},
    {"--seq-length", ArgType::integer,
     "to a checkpoint: tokens of a sample, where neither recipe nor config.json says it", false, "2048", false, "N"},
};

/// Position of the argument's value among its choices.
int choice(const Args& args, const char* name, std::initializer_list<const char*> choices) {
  const std::string value = args.string(name);
  std::string known;
  int at = 0;
  for (const char* candidate : choices) {
    if (value == candidate) return at;
    known += (at++ == 0 ? "" : ", ") + std::string(candidate);
  }
  throw ConfigError(std::string("command line: ") + name + ": expected one of " + known + ", found \"" + value + "\"");
}

std::int64_t shard_bytes(const Args& args) {
  const std::string text = args.string("--shard-size");
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"MB", 1e6}, {"GB", 1e9}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  for (const auto& [name, factor] : kUnits) {
    if (error == std::errc{} && unit == name && number * factor >= 1 && number * factor < 9e18) {
      return static_cast<std::int64_t>(number * factor);
    }
  }
  throw ConfigError("command line: --shard-size: expected a size as 5GB or 500MB, found \"" + text + "\"");
}

/// What is read: one of the two.
struct Source {
  std::optional<HuggingFaceFolder> folder;
  std::optional<CheckpointReader> checkpoint;
  std::optional<CheckpointWeights> weights;
  const WeightSource& get() const { return folder ? static_cast<const WeightSource&>(*folder) : *weights; }
};

void open_source(const std::string& path, Source& source) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    throw IoError(fs::absolute(path).string() + ": is a file; FROM is the folder it lies in, with its config.json");
  }
  if (is_huggingface_folder(path)) {
    source.folder.emplace(path);
    source.folder->check(ParameterList(source.folder->shape()));
    return;
  }
  CheckpointStore::Found found;
  try {
    found = find_checkpoint(path);
  } catch (const IoError& problem) {
    throw IoError(std::string(problem.what()) + "; a Hugging Face folder has a config.json, and there is none either");
  }
  if (!found.note.empty()) std::cerr << found.note << "\n";
  source.checkpoint.emplace(found.path);
  source.weights.emplace(*source.checkpoint);
}

std::vector<fs::path> companions(const Args& args, const Source& source) {
  if (args.has("--tokenizer")) {
    std::vector<fs::path> files = tokenizer_files_in(args.string("--tokenizer"));
    if (files.empty()) {
      throw IoError(fs::absolute(args.string("--tokenizer")).string() +
                    ": has no tokenizer.json or other file of a tokenizer");
    }
    return files;
  }
  std::vector<fs::path> files = tokenizer_files_in(source.get().folder());
  if (files.empty() && source.checkpoint) files = tokenizer_files_of(source.checkpoint->manifest().recipe);
  return files;
}

/// The tokenizer among the files that travel along; null where there is none that this program reads, which a line on
/// standard error explains: the weights do not depend on it.
std::unique_ptr<Tokenizer> tokenizer_among(const std::vector<fs::path>& files, std::int64_t rows) {
  const auto file = std::ranges::find_if(
      files, [](const fs::path& path) { return path.filename() == "tokenizer.json" || path.extension() == ".model"; });
  if (file == files.end()) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer_file(file->string());
  } catch (const Error& error) {
    std::cerr << error.what() << "; the file travels along unread\n";
    return nullptr;
  }
  if (tokenizer->vocab_size() > rows) {
    throw IoError(fmt::format("{}: has {} ids, the model {} rows for them: another model's tokenizer (--tokenizer)",
                              file->string(), tokenizer->vocab_size(), rows));
  }
  return tokenizer;
}

/// The type all weights of the source share; FP32 where they differ.
DType common_type(const WeightSource& source, const ParameterList& parameters) {
  const DType first = source.dtype_of(parameters[0]);
  const bool same =
      std::ranges::all_of(parameters.all(), [&](const Parameter& p) { return source.dtype_of(p) == first; });
  return same ? first : DType::f32;
}

/// Counts, and ends the work when the user asks for it.
class Advance {
 public:
  Advance(std::string what, std::int64_t bytes) : what_(std::move(what)), progress_("convert " + what_, bytes) {}
  void operator()(std::int64_t bytes) {
    progress_.add(bytes);
    if (const int signal = StopSignals::received()) {
      throw Error(ExitCode::interrupted, fmt::format("{}: stopped by signal {}; nothing was written", what_, signal));
    }
  }

 private:
  std::string what_;
  ByteProgress progress_;
};

void report(const std::string& to, const WrittenModel& written, std::string_view type, std::size_t companions) {
  fmt::print("{}: {} tensors, {} of {} in {} file{}{}\n", to, written.tensors,
             shown_bytes(static_cast<double>(written.bytes)), type, written.files, written.files == 1 ? "" : "s",
             companions == 0 ? "; no tokenizer files were found to travel along"
                             : fmt::format("; {} tokenizer file{}", companions, companions == 1 ? "" : "s"));
}

/// config.json of the Hugging Face model that a checkpoint was made of or started from; "" without one. Its special ids
/// and all else that a checkpoint has no place for go back to where they came from.
std::string kept_config(const CheckpointReader& checkpoint) {
  if (std::string text = kept_huggingface_config(checkpoint.folder()); !text.empty()) return text;
  const fs::path start = string_in(checkpoint.manifest().recipe, "checkpoint", "load_model");
  if (start.empty()) return "";
  try {
    if (!is_huggingface_folder(start)) return kept_huggingface_config(find_checkpoint(start.string()).path);
    const HuggingFaceConfig config = read_huggingface_config(start);
    return model_mismatch(checkpoint.manifest().model, config.shape).empty() ? config.text : "";
  } catch (const IoError&) {
    return "";  // where the run started need not be there any more
  }
}

void to_huggingface(const Args& args, const Source& source) {
  const WeightSource& weights = source.get();
  const ModelShape& shape = weights.shape();
  const ParameterList parameters(shape);
  HuggingFaceExport what;
  what.folder = args.string("TO");
  constexpr DType kTypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
  const int type = choice(args, "--dtype", {"keep", "f32", "bf16", "f16"});
  what.dtype = type == 0 ? common_type(weights, parameters) : kTypes[type];
  what.shard_bytes = shard_bytes(args);
  const bool tokenizer_rows = choice(args, "--rows", {"tokenizer", "logical"}) == 0;
  what.vocab = tokenizer_rows && shape.tokenizer_vocab > 0 ? std::min(shape.tokenizer_vocab, shape.vocab) : shape.vocab;
  what.config = source.folder ? source.folder->config().text : kept_config(*source.checkpoint);
  what.companions = companions(args, source);
  if (const auto tokenizer = tokenizer_among(what.companions, what.vocab)) {
    if (what.config.empty()) what.ids.end = tokenizer->end_of_document();
  } else if (what.companions.empty() && source.checkpoint &&
             string_in(source.checkpoint->manifest().recipe, "tokenizer", "plugin") == kBuiltInTokenizer) {
    what.made = byte_tokenizer_files();
    what.ids = {-1, ByteTokenizer::kEndOfDocument, ByteTokenizer::kPadding};
  }
  const std::int64_t bytes = export_bytes(parameters, what);
  Advance advance(what.folder.string(), bytes);
  const WrittenModel written = write_huggingface(weights, parameters, what, advance);
  report(what.folder.string(), written, name_of(what.dtype), what.companions.size() + what.made.size());
}

/// The model a recipe names must be the one that is read; its vocabulary may have more rows.
void use_recipe(const Args& args, const HuggingFaceFolder& folder, CheckpointImport& what) {
  RecipeRequest request;
  request.file = args.string("--recipe");
  const OpenRecipe opened = open_recipe(request);
  what.recipe = opened.recipe.effective;
  const std::int64_t needed = folder.shape().vocab;
  what.shape = shape_of(opened.recipe.model);
  what.shape.tokenizer_vocab = std::min(needed, what.shape.vocab);
  const std::string mismatch = model_mismatch(what.shape, folder.shape());
  if (!mismatch.empty()) throw ConfigError(request.file + ": " + mismatch + " in " + folder.folder().string());
  folder.check(ParameterList(what.shape), what.shape.tokenizer_vocab);
}

void to_checkpoint(const Args& args, const Source& source) {
  CheckpointImport what;
  what.folder = args.string("TO");
  const HuggingFaceFolder& folder = *source.folder;
  what.origin = fs::absolute(folder.folder()).lexically_normal().string();
  what.companions = companions(args, source);
  what.config = folder.config().text;
  if (args.has("--recipe")) {
    use_recipe(args, folder, what);
  } else {
    what.shape = folder.shape();
    if (what.shape.seq_length == 0) what.shape.seq_length = args.integer("--seq-length");
    if (what.shape.seq_length < 1) throw ConfigError("command line: --seq-length: must be at least 1");
    std::string table;
    if (const auto tokenizer = tokenizer_among(what.companions, what.shape.vocab)) {
      what.shape.tokenizer_vocab = tokenizer->vocab_size();
      what.tokenizer = tokenizer->fingerprint();
      table = tokenizer_section(what.companions,
                                fs::absolute(what.folder).lexically_normal() / CheckpointStore::name_of(0));
    }
    what.recipe = converted_recipe(what.shape, what.origin, table);
  }
  const ParameterList parameters(what.shape);
  Advance advance(what.folder.string(), parameters.count() * 4);
  const WrittenModel written = write_checkpoint(folder, parameters, what, advance);
  report((what.folder / "step_0").string(), written, name_of(DType::f32), what.companions.size());
}

/// What is written must not lie in the folder that is read: a model's files would be mixed with others, and a
/// checkpoint that is not kept any more takes all in it along.
void require_apart(const Args& args, const Source& source) {
  const fs::path from = fs::weakly_canonical(source.get().folder()), to = fs::weakly_canonical(args.string("TO"));
  if (std::ranges::mismatch(from, to).in1 != from.end()) return;
  throw ConfigError(fmt::format("command line: TO: {} lies within what is read, {}; name a folder beside it",
                                to.string(), from.string()));
}

/// An option that the direction does not use would be ignored without a word.
void refuse_unused(const Args& args, bool to_huggingface) {
  const auto refuse = [](const char* name, const char* why) {
    throw ConfigError(std::string("command line: ") + name + ": is for " + why);
  };
  if (to_huggingface) {
    if (args.has("--recipe")) refuse("--recipe", "what becomes a checkpoint");
    if (args.string("--seq-length") != "2048") refuse("--seq-length", "what becomes a checkpoint");
    return;
  }
  if (args.string("--dtype") != "keep")
    refuse("--dtype", "what becomes a Hugging Face model; a checkpoint's weights are f32");
  if (args.string("--rows") != "tokenizer") refuse("--rows", "what becomes a Hugging Face model");
}

int run(const Args& args) {
  if (const Launch launch = detect_launch(); launch.launched_tasks > 1) {
    throw ConfigError("command line: convert runs as one process, but " + launch.launcher + " says " +
                      std::to_string(launch.launched_tasks) + " tasks; start it without mpiexec");
  }
  const StopSignals signals;
  const LostFileMessage lost_file(-1);
  Source source;
  open_source(args.string("FROM"), source);
  const int asked = choice(args, "--to", {"auto", "huggingface", "checkpoint"});
  const bool huggingface = asked == 0 ? !source.folder : asked == 1;
  if (!huggingface && !source.folder) {
    throw ConfigError("command line: --to: FROM is a checkpoint already, which any layout can load");
  }
  refuse_unused(args, huggingface);
  require_apart(args, source);
  if (huggingface) {
    to_huggingface(args, source);
  } else {
    to_checkpoint(args, source);
  }
  return 0;
}

}  // namespace

const Command kConvert{
    "convert", "Hugging Face model to checkpoint, and back",
    "Reads and writes BLOOM and GPT-2 as transformers does: config.json and safetensors, one file or shards. Tensors\n"
    "are read from mapped files and written one by one, so memory stays small whatever the model's size.\n"
    "  trainer convert runs/quickstart out/quickstart-hf --dtype bf16\n"
    "  trainer convert models/bloom-560m checkpoints/bloom-560m\n"
    "  trainer train recipe.toml --set checkpoint.load_model=models/bloom-560m   # needs no conversion\n"
    "TO appears when all of it is on disk. Pickled weights (.bin) are refused: reading them can run any code.",
    kArgs, run};

}  // namespace espalier::app
