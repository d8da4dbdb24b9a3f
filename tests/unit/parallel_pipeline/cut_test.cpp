#include "cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "espalier/error.hpp"
#include "pipeline.hpp"
#include "support/doubles/host.hpp"

namespace espalier::parallel_pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Cut, BlocksEvenlyWithEmbeddingAndHeadOnTop) {
  EXPECT_THAT(cut_blocks(10, 2), ElementsAre(0, 5, 10));
  EXPECT_THAT(cut_blocks(9, 2), ElementsAre(0, 5, 9)) << "7 blocks: 4 and 3";
  EXPECT_THAT(cut_blocks(8, 4), ElementsAre(0, 3, 5, 6, 8)) << "6 blocks: 2, 2, 1, 1";
}

TEST(Cut, SlotsAsBloom) {
  const std::vector<int> cut = cut_slots(72, 12);
  for (std::size_t part = 0; part < 12; ++part) EXPECT_EQ(cut[part + 1] - cut[part], 6);
  EXPECT_THAT(cut_slots(9, 3), ElementsAre(0, 3, 6, 9)) << "the shrunken twin: 7 blocks + 2 slots";
}

TEST(Cut, ByParametersTheLargestPartIsSmallest) {
  ModelShape model;
  model.layers = 6;
  model.hidden = 8;
  model.ffn = 32;
  model.vocab = 210;  // a table weighs as much as two blocks
  const std::vector<double> weights = layer_parameters(model);
  EXPECT_EQ(weights[1], 12.0 * 64 + 13 * 8);
  EXPECT_EQ(weights[0], 210.0 * 8 + 2 * 8) << "with its norm";
  EXPECT_THAT(cut_weights(weights, 2), ElementsAre(0, 4, 8));
  EXPECT_THAT(cut_weights(weights, 5), ElementsAre(0, 1, 3, 5, 7, 8));
  EXPECT_THAT(cut_weights(std::vector<double>{9, 1, 1, 1}, 3), ElementsAre(0, 1, 2, 4));
}

TEST(Cut, EmptyPartsAndWrongSumsAreRefused) {
  EXPECT_THAT(refusal([] { check_cut(cut_blocks(4, 4), 4, 4); }), HasSubstr("leave part"));
  EXPECT_THAT(refusal([] { check_cut(cut_slots(4, 4), 4, 4); }), HasSubstr("accepted"));
  EXPECT_THAT(refusal([] {
                check_cut(cut_list(std::vector<std::int64_t>{2, 3}), 6, 2);
              }),
              HasSubstr("5 layers in all, the model has 6 (embedding, 4 blocks, head)"));
  EXPECT_THAT(refusal([] { check_cut(cut_weights(std::vector<double>{1, 1}, 3), 2, 3); }), HasSubstr("empty"));
  EXPECT_THAT(refusal([] { check_cut(cut_slots(5, 6), 5, 3); }), HasSubstr("3 stages of 2 chunks"));
}

Options read(std::map<std::string, ConfigValue::Data> values, int stages) {
  return read_options(testing_support::TestConfig(kOptions, std::move(values)).view(), stages);
}

TEST(Options, ChunksGoWithInterleaved) {
  EXPECT_EQ(read({}, 4).chunks, 1);
  EXPECT_EQ(read({}, 4).schedule, Schedule::one_f_one_b);
  EXPECT_EQ(read({{"schedule", std::string("interleaved")}}, 4).chunks, 2);
  EXPECT_EQ(read({{"schedule", std::string("interleaved")}}, 1).chunks, 1);
  const std::int64_t three = 3, one = 1;
  EXPECT_EQ(read({{"schedule", std::string("interleaved")}, {"chunks", three}}, 4).chunks, 3);
  EXPECT_THAT(refusal([&] {
                read({{"chunks", three}}, 4);
              }),
              HasSubstr("3 chunks need schedule = \"interleaved\", found \"1f1b\""));
  EXPECT_THAT(refusal([&] {
                read({{"schedule", std::string("interleaved")}, {"chunks", one}}, 4);
              }),
              HasSubstr("interleaved needs 2 or more"));
  EXPECT_THAT(refusal([] { read({{"schedule", std::string("zero_bubbel")}}, 4); }), HasSubstr("zero_bubble"));
}

TEST(Options, PartsReplaceTheCut) {
  const ConfigValue::Array list = {ConfigValue{std::int64_t{3}, {}}, ConfigValue{std::int64_t{2}, {}}};
  const Options options = read({{"parts", list}}, 2);
  EXPECT_EQ(options.cut, Cut::list);
  EXPECT_THAT(Pipeline(options, 2, {}).cut(std::vector<double>(5, 1.0)), ElementsAre(0, 3, 5));
  EXPECT_THAT(refusal([&] { read({{"parts", list}}, 3); }), HasSubstr("expected 3 (3 stages of 1 chunks), found 2"));
  EXPECT_THAT(refusal([&] {
                read({{"parts", list}, {"cut", std::string("slots")}}, 2);
              }),
              HasSubstr("cut = \"slots\" is given too"));
  EXPECT_EQ(read({{"parts", list}, {"cut", std::string("layers")}}, 2).cut, Cut::list)
      << "a saved recipe holds the default";
}

}  // namespace
}  // namespace espalier::parallel_pipeline
