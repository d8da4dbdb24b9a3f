#include "config/recipe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "model/parameters.hpp"
#include "unit/config/support.hpp"

namespace espalier::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RecipeTest : public ::testing::Test {
 protected:
  std::string small(std::string_view more = "") {
    return folder_.write("small.toml", std::string(kSmall) + std::string(more));
  }
  RecipeFolder folder_;
};

TEST_F(RecipeTest, ValuesAndDefaultsArrive) {
  const Recipe recipe = load(small());
  EXPECT_EQ(recipe.model.layers, 6);
  EXPECT_EQ(recipe.model.ffn, 384);
  EXPECT_DOUBLE_EQ(recipe.model.init_method_std, std::sqrt(1.0 / 288));
  EXPECT_EQ(recipe.train.seed, 1234u);
  EXPECT_EQ(recipe.train.train_steps, 125);
  EXPECT_EQ(recipe.train.rate.decay_samples, 1000);
  EXPECT_EQ(recipe.optimizer.plugin, "optim_bf16");
  EXPECT_EQ(recipe.optimizer.kind, "optimizer");
  EXPECT_EQ(recipe.backend.choice.library_name(), "reference");
  EXPECT_EQ(recipe.run_dir, "runs/small");
  EXPECT_EQ(recipe.checkpoint.save, "runs/small/checkpoints");
  EXPECT_EQ(recipe.grid.world(), 1);
}

// G05: an integer where a number is meant, also inside an array.
TEST_F(RecipeTest, IntegersServeAsNumbers) {
  const Recipe recipe = load(small());
  EXPECT_EQ(recipe.train.rate.lr, 1.0);
  EXPECT_EQ(ConfigView(recipe.optimizer.options, "optimizer").numbers("betas"), (std::vector<double>{0.0, 0.95}));
}

// A NUL ends a path and a message too early, an ESC reaches the terminal.
TEST_F(RecipeTest, ControlCharactersAreRefused) {
  EXPECT_THAT(refusal(small("[run]\ndir = \"a\\u0000b\"\n")), AllOf(HasSubstr("run.dir: "), HasSubstr("control character")));
  EXPECT_THAT(refusal(small("[tokenizer]\nplugin = \"a\\u001b[1mb\"\n")), HasSubstr("tokenizer.plugin: a control character"));
}

TEST_F(RecipeTest, AnEmptySearchPathIsNamed) {
  EXPECT_THAT(refusal(small("[plugins]\nsearch_path = [\"\"]\n")), HasSubstr("plugins.search_path: expected folders, found \"\""));
}

TEST_F(RecipeTest, TextAndObjectsNeedFilesOfTheirOwn) {
  EXPECT_THAT(refusal(small("[log]\nfile = \"a/x\"\nmetrics = \"a/./x\"\n")), HasSubstr("log.metrics: \"a/./x\" is log.file, too"));
}

TEST_F(RecipeTest, WrongTypesAreRefusedWithExpectedAndFound) {
  const std::string file = small();
  EXPECT_THAT(refusal(file, {"model.seq_length=2048.0"}), HasSubstr("model.seq_length: expected integer"));
  EXPECT_THAT(refusal(file, {"model.seq_length=2048.0"}), HasSubstr("found float 2048.0"));
  EXPECT_THAT(refusal(file, {"train.micro_batch_size=\"4\""}),
              AllOf(HasSubstr("train.micro_batch_size: expected integer"), HasSubstr("found string \"4\"")));
  EXPECT_THAT(refusal(file, {"model.layers=-2"}),
              AllOf(HasSubstr("model.layers: expected integer"), HasSubstr("found integer -2")));
  EXPECT_THAT(refusal(file, {"train.lr=\"fast\""}), HasSubstr("train.lr: expected number"));
  EXPECT_THAT(refusal(file, {"train.lr=nan"}), HasSubstr("train.lr: expected number"));
  EXPECT_THAT(refusal(file, {"model.tied_head=1"}), HasSubstr("model.tied_head: expected boolean"));
  EXPECT_THAT(refusal(file, {"optimizer.betas=0.9"}), HasSubstr("optimizer.betas: expected array of numbers"));
  // 2^63 is no 64-bit integer: the parser's own message, never the default in its place.
  EXPECT_THAT(refusal(file, {"train.train_samples=9223372036854775808"}),
              AllOf(HasSubstr("--set train.train_samples: no valid TOML"), HasSubstr("9223372036854775808")));
  EXPECT_THAT(refusal(file, {"train.lr_decay_style=1f1b"}), HasSubstr("found string \"1f1b\""))
      << "a word, though it starts with a digit";
  EXPECT_THAT(refusal(file, {"train.train_samples=9223372036854775807"}),
              HasSubstr("train.train_samples: expected integer"));
  EXPECT_THAT(refusal(file, {"train.seed=2020-01-01"}), HasSubstr("no key of a recipe takes a date"));
}

// G01.
TEST_F(RecipeTest, AMistypedKeyIsRefusedWithPlaceAndNearestName) {
  const std::string file = small("[log]\nintervall = 5\n[eval]\n");
  EXPECT_EQ(refusal(file), file + ":18:1: log.intervall: unknown key; did you mean \"interval\"?");
  const std::string other = folder_.write("other.toml", "[train]\ngradient_clipp1ng = 1.0\n");
  EXPECT_THAT(refusal(other), HasSubstr(other + ":2:1: train.gradient_clipp1ng: unknown key; did you mean "
                                                "\"gradient_clipping\"? Here it is train.clip_grad"));
}

// G03: a misspelt table, and a key that is called otherwise here.
TEST_F(RecipeTest, UnknownTablesAndRemovedKeysAreRefused) {
  const std::string file = small("[pararell.tensor]\nsize = 2\n");
  EXPECT_EQ(refusal(file), file + ":17:2: pararell: unknown table; did you mean \"parallel\"?");
  EXPECT_THAT(refusal(small("[parallel.tensr]\nsize = 2\n")),
              HasSubstr("parallel.tensr: unknown table; did you mean \"parallel.tensor\"?"));
  EXPECT_THAT(refusal(small(), {"train.num_layers=2"}),
              HasSubstr("train.num_layers: unknown key; here it is model.layers"));
  EXPECT_THAT(refusal(small(), {"train.eval_interval=2"}), HasSubstr("here it is eval.interval"));
  EXPECT_THAT(refusal(small(), {"train.save_interval=2"}),
              HasSubstr("it belongs to another table: checkpoint.save_interval"));
  EXPECT_THAT(refusal(small(), {"tensor_model_parallel_size=2"}), HasSubstr("here it is parallel.tensor.size"));
  // [load] model = … is checkpoint.load_model, however it is asked for.
  const std::string load = "here it is checkpoint.load_model (weights to start from), checkpoint.load (a checkpoint to";
  EXPECT_THAT(refusal(small("[load]\nmodel = \"models/bloom-560m\"\n")),
              HasSubstr(":17:2: load: unknown table; " + load));
  EXPECT_THAT(refusal(small(), {"load.model=models/bloom-560m"}), HasSubstr("--set load: unknown table; " + load));
  EXPECT_THAT(refusal(small(), {"load=models/bloom-560m"}), HasSubstr("load: unknown key; " + load));
  EXPECT_THAT(refusal(small(), {"checkpoint.load.model=models/bloom-560m"}), HasSubstr("checkpoint.load"));
  EXPECT_THAT(refusal(small(), {"checkpoint.model=models/bloom-560m"}), HasSubstr("load load_optimizer load_model"));
  EXPECT_THAT(refusal(small(), {"train.finetune=true"}), HasSubstr("here it is checkpoint.load_model"));
  EXPECT_THAT(refusal(small(), {"lr=2"}), HasSubstr("lr: unknown key; it belongs to a table: train.lr"));
  EXPECT_THAT(refusal(small(), {"model=3"}), HasSubstr("model: expected table, found 3"));
}

// What is missing is reported where its table is, and a table that is missing is named.
TEST_F(RecipeTest, MissingKeysAreReportedAtTheirTable) {
  folder_.write("base.toml", "[train]\nglobal_batch_size = 8\nmicro_batch_size = 2\n");
  const std::string file =
      folder_.write("own.toml", "include = \"base.toml\"\n\nmodel.layers = 2\n\n[train]\nseed = 1\n");
  const std::string text = refusal(file);
  EXPECT_THAT(text, HasSubstr(file + ":3:1: model.hidden: missing; expected integer"));
  EXPECT_THAT(text, HasSubstr(file + ":5:1: train.lr: missing; expected number"));
  EXPECT_THAT(text, HasSubstr(file + ":5:1: train.train_samples: missing; give"));
  EXPECT_THAT(text, HasSubstr(file + ":1:1: optimizer.plugin: missing with its table [optimizer]; expected string"));
}

// G04: overrides have messages of the same form as the file.
TEST_F(RecipeTest, AMistypedOverrideIsRefused) {
  EXPECT_EQ(refusal(small(), {"train.lrr=1"}), "--set train.lrr: unknown key; did you mean \"lr\"?");
  EXPECT_EQ(refusal(small(), {"optim.lrr=1"}), "--set optim: unknown table; did you mean \"optimizer\"?");
  EXPECT_EQ(refusal(small(), {"train.lr"}), "--set train.lr: expected KEY=VALUE, as train.lr=1e-4");
  EXPECT_EQ(refusal(small(), {"optimizer.beta=1"}), "--set optimizer.beta: unknown key; did you mean \"betas\"?");
}

TEST_F(RecipeTest, EverythingWrongIsSaidAtOnce) {
  const std::string text =
      refusal(small("[eval]\nintervl = 1\n"), {"model.heads=7", "train.lr=\"x\"", "optimizer.bets=1"}, 3);
  EXPECT_THAT(text,
              AllOf(HasSubstr("eval.intervl"), HasSubstr("7 heads do not divide hidden 96"), HasSubstr("train.lr"),
                    HasSubstr("optimizer.bets"), HasSubstr("parallel.data.plugin: a size of 3 needs a plugin")));
}

// G07: command line > file > environment > default, each with its source.
TEST_F(RecipeTest, SourcesAreRankedAndNamed) {
  const std::string file = small("[log]\ninterval = 3\n");
  const auto source = [](const Recipe& recipe, std::string_view key) {
    const auto found =
        std::find_if(recipe.keys.begin(), recipe.keys.end(), [&](const EffectiveKey& one) { return one.key == key; });
    return found == recipe.keys.end()
               ? std::string("absent")
               : found->value + " " + found->source.origin + " " + std::to_string(found->source.line);
  };
  const std::string environment = "log.interval=4; log.level=debug\neval.interval = 9";
  const Recipe all = load(file, {"log.interval=2"}, 0, environment);
  EXPECT_EQ(source(all, "log.interval"), "2 --set 0");
  EXPECT_EQ(source(load(file, {}, 0, environment), "log.interval"), "3 recipe 18");
  EXPECT_EQ(source(all, "log.level"), "\"debug\" ESPALIER_SET 0");
  EXPECT_EQ(source(all, "eval.interval"), "9 ESPALIER_SET 0");
  EXPECT_EQ(source(all, "eval.samples"), "0 default 0");
  EXPECT_EQ(source(all, "model.ffn"), "384 derived 0");
  EXPECT_THAT(all.effective, AllOf(HasSubstr("interval = 2  # --set"), HasSubstr("level = \"debug\"  # ESPALIER_SET"),
                                   HasSubstr("layers = 6  # " + file + ":2")));
}

TEST_F(RecipeTest, LaterOverridesWin) { EXPECT_EQ(load(small(), {"train.seed=1", "train.seed=2"}).train.seed, 2u); }

TEST_F(RecipeTest, OneWordChangesTheOptimizer) {
  const Recipe recipe = load(small(), {"optimizer.plugin=optim_fp16"});
  EXPECT_EQ(recipe.optimizer.plugin, "optim_fp16");
}

TEST_F(RecipeTest, IncludesMergeAndTheFileItselfWins) {
  small();
  folder_.write("more.toml", "[train]\nseed = 7\nlr = 0.5\n[log]\ninterval = 9\n");
  const std::string file =
      folder_.write("sub/own.toml", "include = [\"../small.toml\", \"../more.toml\"]\n[train]\nlr = 0.25\n");
  const Recipe recipe = load(file);
  EXPECT_EQ(recipe.train.rate.lr, 0.25);
  EXPECT_EQ(recipe.train.seed, 7u);
  EXPECT_EQ(recipe.log.interval, 9);
  EXPECT_EQ(recipe.model.layers, 6);
  EXPECT_EQ(recipe.run_dir, "runs/own");
}

TEST_F(RecipeTest, CirclesAndMissingIncludesAreRefused) {
  const std::string a = folder_.write("a.toml", "include = \"b.toml\"\n");
  folder_.write("b.toml", "include = [\"a.toml\"]\n");
  EXPECT_THAT(refusal(a), HasSubstr("b.toml:1:1: include: a circle: a.toml → b.toml → a.toml"));
  const std::string c = folder_.write("c.toml", "\ninclude = [\"none.toml\"]\n");
  EXPECT_THAT(refusal(c), AllOf(HasSubstr("c.toml:2:1: include: "), HasSubstr("none.toml"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder_.write("d.toml", "include = 3\n")),
              HasSubstr("include: expected array of strings, found 3"));
  EXPECT_THAT(refusal(folder_.write("e.toml", "[train]\nlr = = 3\n")), HasSubstr("e.toml:2:6: no valid TOML"));
  EXPECT_THAT(refusal("/nowhere/r.toml", {}, 0, ExitCode::io), HasSubstr("/nowhere/r.toml"));
}

TEST_F(RecipeTest, MissingPluginsHaveTheirOwnExitCode) {
  EXPECT_THAT(refusal(small(), {"optimizer.plugin=adam", "data.plugin=webdata"}, 0, ExitCode::plugin),
              AllOf(HasSubstr("--set optimizer.plugin: plugin \"adam\" not found"), HasSubstr("data.plugin")));
  EXPECT_THAT(refusal(small(), {"optimizer.plugin=adam", "train.lr=-1"}, 0, ExitCode::usage),
              HasSubstr("\"adam\" not found"));
  EXPECT_THAT(refusal(small(), {"backend.plugin=fused", "backend.device=cuda"}, 0, ExitCode::plugin),
              HasSubstr("fused_cuda"));
}

// The shell has eaten one pair of quotes already.
TEST_F(RecipeTest, TextWithBlanksIsToldToBeQuoted) {
  EXPECT_THAT(refusal(small(), {"run.dir=my run"}), HasSubstr("needs quotes: 'run.dir=\"...\"'"));
  EXPECT_EQ(load(small(), {"run.dir=\"my run\""}).run_dir, "my run");
}

TEST_F(RecipeTest, AProviderOfOneFamilyIsLookedForToo) {
  EXPECT_THAT(refusal(small(), {"backend.overrides={attention=\"nothing\"}"}, 0, ExitCode::plugin),
              HasSubstr("--set backend.overrides: attention: plugin \"nothing\" not found"));
}

TEST_F(RecipeTest, TheEffectiveRecipeReproducesTheRun) {
  const Recipe first = load(small("[parallel.data]\nplugin = \"parallel_zero\"\nstage = 1\n"),
                            {"train.rampup_batch_size=[4, 4, 40]", "backend.overrides={attention=\"reference\"}",
                             "run.dir=\"a \\\"b\\\"\"", "train.lr_decay_style=wsd", "train.lr_wsd_decay_samples=100"},
                            1);
  const Recipe second = load(folder_.write("effective.toml", first.effective), {}, 1);
  const auto values = [](const Recipe& recipe) {
    std::string text;
    for (const EffectiveKey& key : recipe.keys) text += key.key + "=" + key.value + "\n";
    return text;
  };
  EXPECT_EQ(values(first), values(second));
  EXPECT_EQ(second.run_dir, "a \"b\"");
  EXPECT_EQ(second.train.batch.ramp.increment, 4);
  EXPECT_EQ(second.backend.overrides.at("attention"), "reference");
  EXPECT_EQ(second.data_parallel.choice.options.find("stage")->to_text(), "1");
}

// An effective recipe names every option of its backend: they must not stand in the way of another backend.
TEST_F(RecipeTest, AnotherBackendLeavesOutTheSavedOptions) {
  RecipeRequest request;
  request.file = small("[backend]\nplugin = \"fused\"\ndevice = \"cuda\"\ntf32 = true\n");
  request.saved = true;
  const OptionSpec specs[] = {{"tf32", OptionType::boolean, "false", ""}, {"threads", OptionType::integer, "1", ""}};
  const auto backend = [&](std::vector<std::string> overrides) {
    request.overrides = std::move(overrides);
    return load_recipe(request,
                       [&](const PluginChoice& choice, const auto&) {
                         const std::span<const OptionSpec> all(specs);
                         if (choice.kind != std::string_view("backend")) return test_options(choice, {});
                         return choice.device == "cuda" ? all.first(1) : all.last(1);
                       })
        .backend.choice.options;
  };
  EXPECT_EQ(backend({}).find("tf32")->to_text(), "true");
  EXPECT_EQ(backend({"backend.device=cuda"}).find("tf32")->to_text(), "true") << "the same backend";
  EXPECT_EQ(backend({"backend.device=cpu"}).find("tf32"), nullptr);
  EXPECT_EQ(backend({"backend.device=cpu", "backend.threads=3"}).find("threads")->to_text(), "3");
  EXPECT_THROW(backend({"backend.device=cpu", "backend.tf32=true"}), ConfigError) << "asked for";
  request.saved = false;
  EXPECT_THROW(backend({"backend.device=cpu"}), ConfigError) << "somebody wrote it there";
}

TEST_F(RecipeTest, TrainItersBecomeSamples) {
  const std::string file =
      folder_.write("iters.toml",
                    "[model]\nlayers=1\nhidden=8\nheads=2\nvocab_size=260\nseq_length=8\n[train]\ntrain_iters=100\n"
                    "global_batch_size=16\nmicro_batch_size=1\nrampup_batch_size=[8, 8, 160]\nlr=1e-3\n"
                    "[optimizer]\nplugin=\"optim_fp32\"\n[data]\nplugin=\"synthetic\"\n");
  const Recipe recipe = load(file);  // L05
  EXPECT_EQ(recipe.train.train_samples, 1440);
  EXPECT_EQ(recipe.train.train_steps, 100);
  EXPECT_EQ(recipe.train.rate.decay_samples, 1440);
  EXPECT_THAT(recipe.effective, AllOf(HasSubstr("train_samples = 1440"), Not(HasSubstr("train_iters ="))));
  EXPECT_THAT(refusal(file, {"train.train_samples=5"}), HasSubstr("train.train_iters: train_samples is given too"));
}

TEST_F(RecipeTest, PatternsOfWeightDecayMustMeanSomething) {
  const std::string file = small();
  EXPECT_EQ(load(file, {"train.no_weight_decay=[\"word_*\"]"}).train.weight_decay.never.size(), 1u);
  EXPECT_THAT(refusal(file, {"train.no_weight_decay=[\"word_*\", \"wte.*\"]", "train.weight_decay_also=[\"ln_g.*\"]"}),
              AllOf(HasSubstr("--set train.no_weight_decay: no parameter is called \"wte.*\""),
                    HasSubstr("--set train.weight_decay_also: no parameter is called \"ln_g.*\"")));
}

TEST_F(RecipeTest, AKeyWithADotInItIsOneKey) {
  EXPECT_THAT(refusal(small(), {"'a.b'=1"}), HasSubstr("--set a.b: unknown key; known here: run plugins model"));
}

TEST(DecayRules, MatricesOnlyUnlessTheRecipeSaysOtherwise) {
  const DecayRules none;
  EXPECT_TRUE(takes_weight_decay(none, "h.0.mlp.dense_h_to_4h.weight", true));
  EXPECT_FALSE(takes_weight_decay(none, "h.0.mlp.dense_h_to_4h.bias", false));
  EXPECT_FALSE(takes_weight_decay(none, "ln_f.weight", false));
  const DecayRules rules{{"word_embeddings.*"}, {"*.bias", "ln_f.*"}};
  EXPECT_FALSE(takes_weight_decay(rules, "word_embeddings.weight", true));
  EXPECT_TRUE(takes_weight_decay(rules, "h.11.input_layernorm.bias", false));
  EXPECT_TRUE(takes_weight_decay(rules, "ln_f.weight", false));
  EXPECT_FALSE(takes_weight_decay(rules, "h.0.ln_f.weight", false));
}

TEST(Parameters, CountsArePublishedOnes) {
  ModelSection model;
  model.layers = 70;
  model.hidden = 14336;
  model.ffn = 4 * 14336;
  model.heads = 112;
  model.vocab_size = 250'880;
  model.seq_length = 2048;
  EXPECT_EQ(count_parameters(model), 176'247'271'424);
  // GPT-2 small: learned positions, no norm after the embedding.
  model = {};
  model.layers = 12;
  model.hidden = 768;
  model.ffn = 3072;
  model.heads = 12;
  model.vocab_size = 50257;
  model.seq_length = model.positions = 1024;
  model.position = Positions::learned;
  model.embedding_norm = false;
  EXPECT_EQ(count_parameters(model), 124'439'808);
  EXPECT_EQ(ParameterList(shape_of(model)).count(), count_parameters(model)) << "the list the model is made of";
  model.tied_head = false;
  model.ffn = 2000;
  model.embedding_norm = true;
  EXPECT_EQ(ParameterList(shape_of(model)).count(), count_parameters(model));
}

}  // namespace
}  // namespace espalier::app
