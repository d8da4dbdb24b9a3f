// The quickstart's recipe, shrunk, through the CUDA backend under emulation and on the CPU.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {

using Change = std::function<void(TrainerJob&)>;

// How near a run on the emulated GPU is to the CPU's, relative, in each step's loss and gradient norm and each
// validation loss. FP32 sums run in another order; 16-bit results round to other neighbours here and there, and the
// steps carry that on.
constexpr double kFp32 = 2e-6;
constexpr double kHalf = 3e-3;

/// The shipped recipe, in a job's folder.
constexpr const char* kQuickstart = "quickstart.toml";

/// What scripts/quickstart.sh makes of its corpus, of two small texts: words.{bin,idx} and code.{bin,idx} in a folder
/// that goes with the program.
class Tokens {
 public:
  Tokens() : folder_(std::filesystem::temp_directory_path() / ("espalier_tokens_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    make("words", "LICENSE");
    make("code", "scripts/quickstart.sh");
  }
  ~Tokens() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;

  /// Made when first asked for.
  static std::string prefix(const std::string& set) {
    static const Tokens tokens;
    return (tokens.folder_ / set).string();
  }

 private:
  void make(const std::string& set, const std::string& from) const {
    const std::string prefix = (folder_ / set).string();
    {
      std::ifstream text(ESPALIER_SOURCE_DIR "/" + from);
      std::ofstream lines(prefix + ".jsonl");
      for (std::string line; std::getline(text, line);) {
        if (!line.empty()) lines << Json{{"text", line}}.dump() << "\n";
      }
    }
    const Ended ended = run_command({TRAINER_EXE, "preprocess", "--input", prefix + ".jsonl", "--output", prefix}, {},
                                    folder_ / "preprocess.txt", 60);
    if (ended.code != 0) throw std::runtime_error(ended.output);
  }

  std::filesystem::path folder_;
};

/// configs/quickstart.toml, smaller and shorter: two layers of its twelve heads, evaluated before the first step and
/// after the last.
/// @param change  what the case is about: optimizer, layout, dropout.
inline TrainerJob quickstart_job(const std::string& name, int steps, const Change& change) {
  TrainerJob job(name, kQuickstart);
  std::filesystem::copy_file(ESPALIER_SOURCE_DIR "/configs/quickstart.toml", job.folder() / kQuickstart);
  const std::string words = "path = \"" + Tokens::prefix("words") + "\"";
  const std::string code = "path = \"" + Tokens::prefix("code") + "\"";
  job.set("plugins.search_path", "[\"" EMULATED_DIR "\", \"" LION_DIR "\", \"" ESPALIER_PLUGIN_DIR "\"]")
      .set("model.layers", "2")
      .set("model.hidden", "48")
      .set("model.vocab_size", "264")
      .set("model.seq_length", "16")
      .set("train.train_samples", std::to_string(4 * steps))
      .set("train.lr_warmup_samples", "4")
      .set("train.threads", "1")
      .set("data.train", "[{ " + words + ", weight = 0.7 }, { " + code + ", weight = 0.3 }]")
      .set("data.valid", "[{ name = \"words\", " + words + " }, { name = \"code\", " + code + " }]")
      .set("eval.samples", "3")
      .set("log.interval", "1");
  change(job);
  return job;
}

/// On emulated GPUs. The order of work, and that of blocks and threads in a kernel, follow from the seed.
inline TrainerJob& on_cuda(TrainerJob& job, int seed) {
  static const char* const kOrders[] = {"forward", "reverse", "random"};
  return job.set("backend.device", "\"cuda\"")
      .environment("ESPALIER_FAKE_CUDA_DEVICES=4")
      .environment("ESPALIER_FAKE_CUDA_SEED=" + std::to_string(seed))
      .environment(std::string("ESPALIER_CUDA_EMULATION=races=off,order=") + kOrders[seed % 3]);
}

/// |a − b| <= tolerance · |a| for what the steps and the evaluations found; overflows are overflows in both.
inline void expect_near(const TrainerJob& cpu, const TrainerJob& cuda, double tolerance, const std::string& which) {
  double worst = 0;
  const auto compare = [&](const Json& a, const Json& b, const std::string& key, std::size_t at) {
    const double want = number(a, key), got = number(b, key);
    if (!std::isfinite(want)) {  // a skipped step
      EXPECT_FALSE(std::isfinite(got)) << which << ", " << key << " " << at;
      return;
    }
    worst = std::max(worst, std::abs(got - want) / std::abs(want));
    EXPECT_NEAR(got, want, tolerance * std::abs(want)) << which << ", " << key << " " << at;
  };
  const auto a = cpu.steps(), b = cuda.steps();
  ASSERT_EQ(a.size(), b.size()) << which;
  for (std::size_t i = 0; i < a.size(); ++i) {
    compare(a[i], b[i], "lm loss", i + 1);
    compare(a[i], b[i], "grad norm", i + 1);
    EXPECT_EQ(a[i].at("skipped steps"), b[i].at("skipped steps")) << which << ", step " << i + 1;
  }
  const auto c = cpu.records("evaluation"), d = cuda.records("evaluation");
  ASSERT_FALSE(c.empty()) << which;
  ASSERT_EQ(c.size(), d.size()) << which;
  for (std::size_t i = 0; i < c.size(); ++i) {
    for (const auto& [key, value] : c[i].items()) {
      if (key.starts_with("lm loss")) compare(c[i], d[i], key, i);
    }
  }
  std::ostringstream text;
  text << worst;
  ::testing::Test::RecordProperty(which + " worst", text.str());
}

/// The same bits: what the steps and the evaluations found, and the last checkpoint.
inline void expect_equal_runs(const TrainerJob& a, const TrainerJob& b, int steps, const std::string& which) {
  EXPECT_EQ(difference_of_steps(a.steps(), b.steps(), 1, steps), "") << which;
  EXPECT_EQ(difference_of_checkpoints(a.checkpoint(steps), b.checkpoint(steps)), "") << which;
  const auto c = a.records("evaluation"), d = b.records("evaluation");
  ASSERT_EQ(c.size(), d.size()) << which;
  for (std::size_t i = 0; i < c.size(); ++i) {
    for (const auto& [key, value] : c[i].items()) {
      if (key.starts_with("lm loss")) {
        EXPECT_EQ(value, d[i].at(key)) << which << ", " << key << " " << i;
      }
    }
  }
}

/// The CPU's run within the tolerance, and the same bits in `orders` orders.
inline void expect_cuda_as_cpu(const std::string& name, int steps, int orders, double tolerance, const Change& change) {
  TrainerJob cpu = quickstart_job(name + "_cpu", steps, change);
  cpu.expect(0, 300);
  TrainerJob first = quickstart_job(name + "_cuda_0", steps, change);
  on_cuda(first, 0).expect(0, 600);
  expect_near(cpu, first, tolerance, name);
  for (int seed = 1; seed < orders; ++seed) {
    TrainerJob other = quickstart_job(name + "_cuda_" + std::to_string(seed), steps, change);
    on_cuda(other, seed).expect(0, 600);
    expect_equal_runs(first, other, steps, name + ", seed " + std::to_string(seed));
  }
}

inline Change both(Change first, Change second) {
  return [=](TrainerJob& job) {
    first(job);
    second(job);
  };
}
inline Change key(std::string name, std::string value) {
  return [=](TrainerJob& job) { job.set(name, value); };
}
inline Change optimizer(const std::string& name) { return key("optimizer.plugin", "\"" + name + "\""); }

/// The optimizer of examples/plugins, which knows nothing of CUDA. Who swaps optimizers edits the recipe: it has no
/// `betas`.
inline void lion(TrainerJob& job) {
  std::ifstream in(ESPALIER_SOURCE_DIR "/configs/quickstart.toml");
  std::ofstream out(job.folder() / kQuickstart);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("betas")) out << line << "\n";
  }
  job.set("optimizer.plugin", "\"optim_lion\"").set("train.lr", "3e-4");
}

inline Change zero(int stage, int world = 2) {
  return [=](TrainerJob& job) { job.ranks(world, stage); };
}
/// @param strategy  "tensor" or "pipeline", over two ranks.
inline Change split(const std::string& strategy) {
  return both(key("parallel." + strategy + ".plugin", "\"parallel_" + strategy + "\""),
              key("parallel." + strategy + ".size", "2"));
}

}  // namespace espalier::testing_support
