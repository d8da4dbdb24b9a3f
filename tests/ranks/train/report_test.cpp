// What a run tells about itself: speed, evaluations, decay groups.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// O08: tokens/s times step time is the step's own batch times the sequence length, in a batch ramp too.
TEST(Report, SpeedTimesTimeIsTokens) {
  TrainerJob job("speed");
  job.set("train.global_batch_size", "16").set("train.rampup_batch_size", "[4, 4, 64]").set("train.train_iters", "14");
  job.set("log.interval", "5").expect(0);
  double largest = 0;
  for (const Json& step : job.steps()) {
    const double tokens = number(step, "global batch size") * 24;
    largest = std::max(largest, tokens);
    EXPECT_NEAR(number(step, "tokens per second") * number(step, "step time (s)"), tokens, 0.01 * tokens);
    EXPECT_NEAR(number(step, "samples per second") * 24, number(step, "tokens per second"),
                0.01 * number(step, "tokens per second"));
  }
  EXPECT_EQ(largest, 16 * 24);
  // The first step is told apart: it makes caches and kernels ready.
  EXPECT_EQ(job.records("speed").size(), 1u);
  EXPECT_NE(job.records("speed")[0].at("text").get<std::string>().find("the first step took"), std::string::npos);
}

// A log line of several steps speaks of all of them: its samples over its time, not of the last one's.
TEST(Report, LogLinesAverageOverTheirSteps) {
  TrainerJob job("log_line");
  job.set("train.global_batch_size", "16").set("train.rampup_batch_size", "[4, 4, 64]").set("train.train_iters", "10");
  job.set("log.interval", "5").expect(0);
  const std::string log = job.log();
  const std::regex line("iteration +(\\d+)/.*samples per second: ([0-9.]+) \\| tokens per second: ([0-9.]+)");
  const auto steps = job.steps();
  int lines = 0;
  for (std::sregex_iterator match(log.begin(), log.end(), line), end; match != end; ++match, ++lines) {
    const int last = std::stoi((*match)[1]);
    double samples = 0, seconds = 0;
    for (int step = std::max(2, last - 4); step <= last; ++step) {  // without the first step of the process
      samples += number(steps[static_cast<std::size_t>(step - 1)], "global batch size");
      seconds += number(steps[static_cast<std::size_t>(step - 1)], "step time (s)");
    }
    EXPECT_NEAR(std::stod((*match)[2]), samples / seconds, 0.01 * samples / seconds) << "line of step " << last;
    EXPECT_NEAR(std::stod((*match)[3]), 24 * samples / seconds, 0.01 * 24 * samples / seconds)
        << "line of step " << last;
  }
  EXPECT_EQ(lines, 2) << log;
}

// O05: how often is evaluated changes nothing in training, and each evaluation reads the same samples.
TEST(Report, EvaluationLeavesTrainingAlone) {
  TrainerJob never("eval_0"), five("eval_5"), seven("eval_7");
  const std::string record = (five.folder() / "read").string();
  for (TrainerJob* job : {&never, &five, &seven}) {
    job->set("train.train_iters", "20").set("eval.samples", "6").ranks(2);
    job->set("model.attention_dropout", "0.1").set("model.hidden_dropout", "0.1");
    job->set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" FAULTS_DIR "\"]")
        .set("data.plugin", "\"faults\"");
  }
  never.set("eval.interval", "0").expect(0);
  five.set("eval.interval", "5").set("data.record", "\"" + record + "\"").expect(0);
  seven.set("eval.interval", "7").expect(0);
  for (TrainerJob* job : {&five, &seven}) {
    EXPECT_EQ(difference_of_steps(never.steps(), job->steps(), 1, 20), "");
    EXPECT_EQ(difference_of_checkpoints(never.checkpoint(20), job->checkpoint(20)), "");
  }
  ASSERT_EQ(five.records("evaluation").size(), 2 * 3u)
      << "evaluations after steps 5, 10 and 15, each a log event and a record";
  for (const char* rank : {".0", ".1"}) {
    const std::string read = text_of(record + rank);
    ASSERT_EQ(read.size() % 3, 0u);
    const std::string once = read.substr(0, read.size() / 3);
    EXPECT_FALSE(once.empty());
    EXPECT_EQ(once + once + once, read) << "rank " << rank;
  }
}

TEST(Report, DecayGroupsAreListedByNameAtStart) {
  TrainerJob job("groups");
  job.set("train.train_iters", "1").expect(0);
  std::string all;
  for (const Json& record : job.records("decay")) all += record.at("text").get<std::string>() + "\n";
  const auto no_decay = all.find("without weight decay");
  ASSERT_NE(no_decay, std::string::npos) << all;
  EXPECT_LT(all.find("word_embeddings.weight"), no_decay) << all;
  EXPECT_LT(all.find("self_attention.query_key_value.weight"), no_decay) << all;
  EXPECT_GT(all.find("ln_f.weight"), no_decay) << all;
  EXPECT_GT(all.find("mlp.dense_4h_to_h.bias"), no_decay) << all;
  EXPECT_NE(all.find("9 parameters"), std::string::npos) << all;
  EXPECT_NE(all.find("20 parameters"), std::string::npos) << all;
}

// Bytes, calls and waiting of each group and verb stand in every record, and the end of the run adds them up.
TEST(Report, CommunicationIsCountedByGroupAndVerb) {
  TrainerJob one("comm_one"), two("comm_two");
  one.set("train.train_iters", "3").expect(0);
  const std::vector<Json> alone = one.steps();
  for (const auto& [key, value] : alone.at(0).items()) EXPECT_FALSE(key.starts_with("comm ")) << key;
  EXPECT_TRUE(one.records("comm").empty());

  // With overlap the weights of a step are gathered in the next.
  two.set("train.train_iters", "4").ranks(2).set("parallel.data.overlap", "false").expect(0);
  double calls = 0;
  for (const Json& step : two.steps()) {
    // One buffer a layer and class; the sums go out in f32, the FP32 weights come back.
    const double sums = number(step, "comm data reduce_scatter bytes");
    EXPECT_EQ(sums, number(step, "comm data all_gather bytes"));
    EXPECT_GE(sums, 4 * 33824 / 2.0) << "every parameter's gradient, but for the half that stays";
    EXPECT_LT(sums, 4 * 33824 / 2.0 * 1.05);
    EXPECT_EQ(number(step, "comm world all_reduce calls"), 1) << "one verdict";
    EXPECT_GT(number(step, "comm data reduce_scatter wait (s)"), 0);
    calls += number(step, "comm data reduce_scatter calls") + number(step, "comm data all_gather calls");
  }
  const auto lines = two.records("comm");
  ASSERT_EQ(lines.size(), 2u) << "world and data; groups of one rank cost nothing";
  const std::string data = lines[1].at("text").get<std::string>();
  std::smatch match;
  ASSERT_TRUE(
      std::regex_search(data, match, std::regex("^data: ([0-9.]+) MB sent in (\\d+) calls, ([0-9.]+) s waiting")))
      << data;
  EXPECT_EQ(std::stod(match[2]), calls);
  EXPECT_NEAR(std::stod(match[1]), 4 * 2 * number(two.steps()[0], "comm data all_gather bytes") / 1e6, 0.06);
}

}  // namespace
}  // namespace espalier::testing_support
