#include "config/sections.hpp"

#include <iterator>
#include <limits>

#include "espalier/error.hpp"
#include "espalier/plugin.hpp"

namespace espalier::app {

namespace {

using enum OptionType;

// Lengths and counts stay below this, so that products of a few of them fit into 64 bits.
constexpr double kMost = 1e12;
constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kNone = -kAny;

constexpr OptionSpec kRun[] = {
    {"dir", string, "", "folder of the run: checkpoints, log, metrics; default runs/<name of the recipe>"},
};

constexpr OptionSpec kPlugins[] = {
    {"search_path", strings, "[]", "folders to look for plugins in, before those of the program"},
};

constexpr OptionSpec kModel[] = {
    {"layers", integer, nullptr, "transformer blocks", 1, 100000},
    {"hidden", integer, nullptr, "width of the residual stream", 1, 1e6},
    {"heads", integer, nullptr, "attention heads; divides hidden", 1, 100000},
    {"ffn", integer, "", "inner width of the MLP; default 4 * hidden", 1, 1e7},
    {"vocab_size", integer, nullptr, "rows of the embedding, at least what the tokenizer has", 1, 1e8},
    {"seq_length", integer, nullptr, "tokens of a sample", 1, 1e7},
    {"position", string, "\"alibi\"", "positions: ALiBi as BLOOM, or a learned table as GPT-2", kNone, kAny,
     "alibi|learned"},
    {"positions", integer, "", "rows of the learned table; default seq_length", 1, 1e7},
    {"embedding_norm", boolean, "true", "LayerNorm after the word embedding (BLOOM)"},
    {"tied_head", boolean, "true", "the output layer shares the word embedding"},
    {"attention_dropout", number, "0.0", "probability of dropping an attention weight (BLOOM: 0.1)", 0, 0.999},
    {"hidden_dropout", number, "0.0", "probability of dropping an element of a block's output (BLOOM: 0.1)", 0, 0.999},
    {"layernorm_epsilon", number, "1e-5", "added to the variance in LayerNorm", 1e-12, 1},
    {"init_method_std", number, "",
     "standard deviation of initial weights; default sqrt(1 / (3 * hidden)); output layers of a block get it over "
     "sqrt(2 * layers)",
     0, 10},
    {"embedding_init", string, "\"normal\"", "initial word embedding: normal as BLOOM's run, or Xavier-uniform", kNone,
     kAny, "normal|xavier_uniform"},
    {"expect_params", integer, "", "refuse to run unless the model has exactly this many parameters", 1, 1e15},
};

constexpr OptionSpec kMicroBatchStep[] = {
    {"global_batch_size", integer, nullptr, "from this global batch size on (samples)", 1, kMost},
    {"micro_batch_size", integer, nullptr, "this micro-batch size (samples)", 1, 1e6},
};

constexpr OptionSpec kTrain[] = {
    {"seed", integer, "1234", "of weights, dropout and data order", 0},
    {"train_samples", integer, "", "length of the run (samples); the last incomplete batch is left out", 1, kMost},
    {"train_iters", integer, "", "length of the run (steps), instead of train_samples", 1, 1e9},
    {"global_batch_size", integer, "",
     "samples of a step over all ranks. Of this, micro_batch_size and gradient_accumulation_steps two are enough", 1,
     1e9},
    {"micro_batch_size", integer, "", "samples a rank works on at once", 1, 1e6},
    {"gradient_accumulation_steps", integer, "", "micro-batches of a rank in a step", 1, 1e6},
    {"rampup_batch_size", integers, "",
     "[start, increment, samples]: the global batch grows from start to its final size over so many samples", 1, kMost},
    {"micro_batch_schedule", tables, "[]",
     "micro-batch size by global batch size: [{global_batch_size = 784, micro_batch_size = 2}]", kNone, kAny, nullptr,
     kMicroBatchStep, std::size(kMicroBatchStep)},
    {"lr", number, nullptr, "peak learning rate", 0, 1e6},
    {"min_lr", number, "0.0", "floor of the learning rate", 0, 1e6},
    {"lr_decay_style", string, "\"cosine\"", "shape after the warm-up; wsd = warmup, stable, decay", kNone, kAny,
     "constant|linear|cosine|inverse_sqrt|wsd"},
    {"lr_warmup_samples", integer, "0", "linear warm-up from 0 (samples)", 0, kMost},
    {"lr_decay_samples", integer, "",
     "where the floor is reached (samples from the start, warm-up included); default: the length of the run", 1, kMost},
    {"lr_wsd_decay_samples", integer, "", "length of the last phase of wsd (samples); it ends at lr_decay_samples", 1,
     kMost},
    {"lr_wsd_decay_style", string, "", "shape of the last phase of wsd; default linear", kNone, kAny,
     "linear|cosine|exponential|minus_sqrt"},
    {"clip_grad", number, "1.0", "largest global gradient norm; 0: no clipping", 0},
    {"recompute", string, "\"none\"",
     "activations computed again in the backward pass: none, those of attention, all but a block's input", kNone, kAny,
     "none|selective|full"},
    {"no_weight_decay", strings, "[]",
     "parameters without weight decay, besides biases and norms: names, * matches any text"},
    {"weight_decay_also", strings, "[]", "vectors that take weight decay all the same: names, * matches any text"},
    {"nan_policy", string, "\"skip\"", "a step whose gradient is not finite: skip it, or stop", kNone, kAny,
     "skip|stop"},
    {"max_skipped", integer, "50", "consecutive skipped steps before the run stops; 0: no limit", 0, 1e9},
    {"eod_mask_loss", boolean, "false",
     "the token that follows an end-of-document id does not count in the loss (in training and evaluation)"},
    {"exit_duration_in_mins", number, "0.0", "save and stop after this time (minutes); 0: never", 0, 1e9},
    {"exit_interval", integer, "0", "save and stop after a step that is a multiple of this; 0: never", 0, 1e9},
    {"threads", integer, "0", "compute threads of a rank; 0: its share of the allowed cores", 0, 4096},
};

constexpr OptionSpec kTakesPlugin[] = {
    {"plugin", string, nullptr, "what to use: the name of a plugin, or the path of a library"},
};

constexpr OptionSpec kTakesDataset[] = {
    {"plugin", string, nullptr, "where samples come from: a plugin, \"completions\" (pairs of prompt and completion), or \"synthetic\""},
};

constexpr OptionSpec kTakesTokenizer[] = {
    {"plugin", string, "\"bytes\"", "text to ids: \"bytes\", \"huggingface\", \"sentencepiece\" (docs/tokenizers.md), or a plugin"},
};

constexpr OptionSpec kOverrides[] = {
    {"matrix", string, "", "provider of matrix products"},
    {"attention", string, "", "provider of attention"},
    {"norm", string, "", "provider of LayerNorm"},
    {"elementwise", string, "", "provider of activations and sums"},
    {"loss", string, "", "provider of the cross entropy"},
    {"update", string, "", "provider of optimizer updates"},
    {"random", string, "", "provider of dropout and initial weights"},
};

constexpr OptionSpec kBackend[] = {
    {"plugin", string, "\"reference\"", "who computes: a plugin, or \"reference\" (plain loops, the oracle)"},
    {"device", string, "\"cpu\"", "variant of the plugin; \"cuda\" looks for <plugin>_cuda", kNone, kAny, "cpu|cuda"},
    {"overrides", table, "{}", "another provider for one kernel family: {attention = \"reference\"}", kNone, kAny,
     nullptr, kOverrides, std::size(kOverrides)},
};

constexpr OptionSpec kStrategy[] = {
    {"plugin", string, "\"none\"", "how the work is split: a plugin, or \"none\""},
    {"size", integer, "1", "ranks of a group", 1, 1e6},
};

constexpr OptionSpec kDataStrategy[] = {
    {"plugin", string, "\"none\"", "how replicas work together: a plugin, or \"none\""},
    {"size", integer, "", "replicas; 0, or left out: what remains of the world", 0, 1e6},
};

constexpr OptionSpec kEval[] = {
    {"interval", integer, "0", "steps between evaluations; 0: none", 0, 1e9},
    {"samples", integer, "0", "samples of each set in one evaluation; 0: all", 0, kMost},
    {"at_start", boolean, "false", "evaluate before the first step"},
    {"at_end", boolean, "false", "evaluate after the last step"},
};

constexpr OptionSpec kCheckpoint[] = {
    {"save", string, "", "folder of the checkpoints; default run.dir/checkpoints"},
    {"save_interval", integer, "0",
     "steps between checkpoints; 0: only at the end and when stopped; -1: none (what the run learns is lost)", -1, 1e9},
    {"keep", integer, "0", "newest checkpoints that stay; 0: all", 0, 1e9},
    {"async", boolean, "true", "write in the background of training"},
    {"load", string, "\"auto\"",
     "\"auto\": go on from the newest in save if there is one; \"none\"; or a checkpoint's folder"},
    {"load_optimizer", string, "\"strict\"",
     "optimizer state of another optimizer: refuse, convert what fits, or start without", kNone, kAny,
     "strict|convert|skip"},
    {"load_model", string, "",
     "weights to start from where load = \"auto\" finds no checkpoint: a Hugging Face folder, or a checkpoint's; the "
     "optimizer's state starts anew"},
};

constexpr OptionSpec kLog[] = {
    {"interval", integer, "1", "steps between log lines", 1, 1e9},
    {"level", string, "\"info\"", "least level that is shown", kNone, kAny, "debug|info|warning|error"},
    {"file", string, "", "log file, appended to; default run.dir/train.log"},
    {"metrics", string, "", "one JSON object a line and step; default run.dir/metrics.jsonl"},
};

constexpr OptionSpec kGuard[] = {
    {"interval", integer, "100",
     "steps between comparisons, besides those at the start and before each checkpoint; 0: none", 0, 1e9},
    {"action", string, "\"stop\"", "copies that differ: stop the run, or go on with what most ranks hold", kNone, kAny,
     "stop|repair"},
};

constexpr OptionSpec kDebug[] = {
    {"compare_recipes", boolean, "true",
     "ranks compare their recipes at the start; off only where ranks are to differ, on all of them"},
    {"check_collectives", boolean, "false",
     "ranks compare what they are about to do before each collective operation of a step; slow"},
    {"collective_timeout", number, "300.0",
     "with check_collectives: how long a rank waits for the others (seconds) before it says for what and ends the job; "
     "0: for ever",
     0, 1e9},
};

constexpr Section kSections[] = {
    {"run", "Where the run writes.", kRun},
    {"plugins", "Where plugins are.", kPlugins},
    {"model", "The model's shape. BLOOM unless it says otherwise.", kModel},
    {"train", "Length, batch sizes, learning rate, and what to do when things go wrong.", kTrain},
    {"optimizer", "Precision and update.", kTakesPlugin, kKind<Optimizer>},
    {"data", "Samples.", kTakesDataset, kKind<Dataset>},
    {"tokenizer", "Text and ids.", kTakesTokenizer, kKind<Tokenizer>},
    {"backend", "The device and its kernels.", kBackend, kKind<Backend>},
    {"parallel.tensor", "Each layer over several ranks.", kStrategy, kKind<TensorParallel>},
    {"parallel.pipeline", "Layers over several ranks.", kStrategy, kKind<PipelineParallel>},
    {"parallel.data", "Samples over several ranks.", kDataStrategy, kKind<DataParallel>},
    {"eval", "Evaluation on the validation sets.", kEval},
    {"checkpoint", "Saving and resuming.", kCheckpoint},
    {"log", "What the run reports.", kLog},
    {"guard", "Comparison of what several ranks hold alike.", kGuard},
    {"debug", "For finding faults.", kDebug},
};

std::string choices_text(const OptionSpec& spec) {
  if (spec.choices != nullptr) {
    std::string text;
    for (const char* c = spec.choices; *c != '\0'; ++c) text += *c == '|' ? std::string(", ") : std::string(1, *c);
    return text;
  }
  return "";
}

std::string_view type_text(OptionType type) {
  constexpr std::string_view kNames[] = {"boolean", "integer", "number", "string", "integers",
                                         "numbers", "strings", "table",  "tables"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace

std::span<const Section> sections() { return kSections; }

const Section& section(std::string_view path) {
  for (const Section& candidate : kSections) {
    if (path == candidate.path) return candidate;
  }
  ESPALIER_ASSERT(false);
  return kSections[0];
}

std::string reference_text() {
  std::string text;
  for (const Section& part : kSections) {
    text += "### [" + std::string(part.path) + "]\n\n" + part.help +
            "\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
    for (const OptionSpec& key : part.keys) {
      const std::string fallback = key.fallback == nullptr ? "required"
                                   : *key.fallback == '\0' ? ""
                                                           : "`" + std::string(key.fallback) + "`";
      const std::string choices = choices_text(key);
      text += "| `" + std::string(key.name) + "` | " + std::string(type_text(key.type)) + " | " + fallback + " | " +
              key.help + (choices.empty() ? "" : " (" + choices + ")") + " |\n";
    }
    if (part.kind != nullptr)
      text += "\nFurther keys are the options of the plugin (`trainer plugins inspect NAME`).\n";
    text += "\n";
  }
  return text;
}

}  // namespace espalier::app
