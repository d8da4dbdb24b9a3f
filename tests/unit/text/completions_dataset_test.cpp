#include "text/completions_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "espalier/error.hpp"
#include "text/byte_tokenizer.hpp"
#include "text/document_ends.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using text_test::Folder;
using Settings = CompletionsDataset::Settings;

constexpr std::int32_t kEnd = ByteTokenizer::kEndOfDocument;

std::string pair(const std::string& prompt, const std::string& completion) {
  return R"({"prompt":")" + prompt + R"(","completion":")" + completion + "\"}\n";
}

Settings settings(const std::string& file, std::int64_t seq = 7) {
  Settings settings;
  settings.train = {file};
  settings.seq = seq;
  settings.train_samples = 100;
  settings.seed = 5;
  return settings;
}

struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<int> mask;
  std::string text() const {
    std::string text;
    for (const std::int32_t id : tokens) text += id == kEnd ? '|' : static_cast<char>(id);
    return text;
  }
};

Sample read(const Dataset& dataset, int set, std::int64_t index) {
  Sample sample;
  sample.tokens.resize(static_cast<std::size_t>(dataset.sample_tokens()));
  std::vector<std::uint8_t> mask(sample.tokens.size() - 1, 1);
  dataset.read(set, index, sample.tokens, mask);
  sample.mask.assign(mask.begin(), mask.end());
  return sample;
}

std::string refusal(const Settings& settings) {
  try {
    const CompletionsDataset dataset(settings, ByteTokenizer());
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CompletionsDataset, OnlyTheCompletionAndItsEndCount) {
  const Folder folder;
  const CompletionsDataset dataset(settings(folder.write("a.jsonl", pair("ab", "xyz"))), ByteTokenizer());
  const Sample sample = read(dataset, 0, 0);
  EXPECT_EQ(sample.text(), "abxyz|||");
  // Targets b x y z end, then padding.
  EXPECT_THAT(sample.mask, ElementsAre(0, 1, 1, 1, 1, 0, 0));
}

TEST(CompletionsDataset, AnEmptyPromptStartsADocument) {
  const Folder folder;
  const CompletionsDataset dataset(settings(folder.write("a.jsonl", pair("", "xy"))), ByteTokenizer());
  EXPECT_EQ(read(dataset, 0, 0).text(), "|xy|||||");
  EXPECT_THAT(read(dataset, 0, 0).mask, ElementsAre(1, 1, 1, 0, 0, 0, 0));
}

TEST(CompletionsDataset, PackedPairsKeepTheirMasks) {
  const Folder folder;
  Settings packed = settings(folder.write("a.jsonl", pair("a", "x") + pair("bc", "y") + pair("d", "z")));
  packed.pack = true;
  packed.valid = {{"", packed.train[0]}};
  const CompletionsDataset dataset(packed, ByteTokenizer());
  EXPECT_EQ(dataset.sets()[1].name, "a");
  ASSERT_EQ(dataset.sets()[1].samples, 2);
  EXPECT_EQ(read(dataset, 1, 0).text(), "ax|bcy||");
  EXPECT_THAT(read(dataset, 1, 0).mask, ElementsAre(1, 1, 0, 0, 1, 1, 0));
  EXPECT_EQ(read(dataset, 1, 1).text(), "dz||||||");
}

TEST(CompletionsDataset, EveryEpochHasEachPairOnceInAnOrderOfItsOwn) {
  const Folder folder;
  std::string lines;
  for (char c = 'a'; c < 'a' + 20; ++c) lines += pair(std::string(1, c), "x");
  const Settings asked = settings(folder.write("a.jsonl", lines));
  const CompletionsDataset dataset(asked, ByteTokenizer()), again(asked, ByteTokenizer());
  std::vector<std::string> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::string order;
    for (int i = 0; i < 20; ++i) order += read(dataset, 0, epoch * 20 + i).text()[0];
    EXPECT_EQ(std::set<char>(order.begin(), order.end()).size(), 20U);
    epochs.push_back(order);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  // Any place is read alone as it was in turn.
  EXPECT_EQ(read(again, 0, 45).text()[0], epochs[2][5]);
  EXPECT_EQ(again.fingerprint(), dataset.fingerprint());
  Settings other = asked;
  other.seed = 6;
  EXPECT_NE(CompletionsDataset(other, ByteTokenizer()).fingerprint(), dataset.fingerprint());
  EXPECT_EQ(dataset.origin(0, 3).source, folder.file("a.jsonl"));
  EXPECT_EQ('a' + dataset.origin(0, 3).sample, epochs[0][3]);
}

TEST(CompletionsDataset, PairsThatAreTooLong) {
  const Folder folder;
  Settings asked =
      settings(folder.write("a.jsonl", pair("ab", "x") + pair("abcdefgh", "xyz") + pair("p", "123456789")));
  EXPECT_THAT(refusal(asked), HasSubstr("a.jsonl:2: has 12 tokens, a sample 8"));
  asked.too_long = Settings::TooLong::skip;
  asked.valid = {{"same", asked.train[0]}};
  const CompletionsDataset skipped(asked, ByteTokenizer());
  EXPECT_EQ(skipped.sets()[1].samples, 1);
  EXPECT_THAT(skipped.summary()[1],
              HasSubstr("1 pairs in 1 samples, 4 tokens, of which 2 count; 2 pairs too long, left out"));
  asked.too_long = Settings::TooLong::cut;
  const CompletionsDataset cut(asked, ByteTokenizer());
  EXPECT_EQ(read(cut, 1, 1).text(), "efghxyz|");
  EXPECT_THAT(read(cut, 1, 1).mask, ElementsAre(0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(read(cut, 1, 2).text(), "p1234567");
  EXPECT_THAT(read(cut, 1, 2).mask, ElementsAre(1, 1, 1, 1, 1, 1, 1));
}

TEST(CompletionsDataset, WhatIsWrongIsNamedWithItsLine) {
  const Folder folder;
  const auto with = [&](const std::string& lines) { return refusal(settings(folder.write("a.jsonl", lines))); };
  EXPECT_THAT(with(pair("a", "b") + "\n{\"prompt\":\"a\"}\n"), HasSubstr("a.jsonl:3: "));
  EXPECT_THAT(with("{\"prompt\":5,\"completion\":\"a\"}\n"), HasSubstr("a.jsonl:1: "));
  EXPECT_THAT(with("42\n"), HasSubstr("a.jsonl:1: "));
  EXPECT_THAT(with("{\"prompt\n"), HasSubstr("a.jsonl:1: "));
  EXPECT_THAT(with(pair("a", "")), HasSubstr("empty completion"));
  EXPECT_THAT(with("\n\n"), HasSubstr("has no pair"));
  EXPECT_THAT(with("{\"prompt\":\"a\",\"completion\":\"\xff\"}\n"), HasSubstr("a.jsonl:1: is not UTF-8"));
  EXPECT_THAT(refusal(settings(folder.file("none.jsonl"))), HasSubstr("none.jsonl: cannot open"));
}

TEST(DocumentEnds, WhatFollowsAnEndDoesNotCount) {
  const Folder folder;
  Settings packed = settings(folder.write("a.jsonl", pair("", "x") + pair("", "y")));
  packed.pack = true;
  packed.valid = {{"", packed.train[0]}};
  const CompletionsDataset dataset(packed, ByteTokenizer());
  EXPECT_EQ(read(dataset, 1, 0).text(), "|x||y|||");
  EXPECT_THAT(read(dataset, 1, 0).mask, ElementsAre(1, 1, 0, 1, 1, 0, 0));
  const auto masked = without_document_starts(dataset, kEnd);
  EXPECT_EQ(read(*masked, 1, 0).text(), "|x||y|||");
  EXPECT_THAT(read(*masked, 1, 0).mask, ElementsAre(0, 1, 0, 0, 1, 0, 0));
  EXPECT_EQ(masked->fingerprint(), dataset.fingerprint());
}

}  // namespace
}  // namespace espalier::app
