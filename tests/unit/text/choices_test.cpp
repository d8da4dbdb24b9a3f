#include "text/choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "text/byte_tokenizer.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using text_test::Folder;

TEST(Choices, QuestionsUnderEitherName) {
  const Folder folder;
  const auto questions = read_choices(folder.write("q.jsonl",
                                                   "{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":1}\n\n"
                                                   "{\"query\":\"\",\"choices\":[\"x\"],\"label\":0}\n"));
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].context, "a");
  EXPECT_THAT(questions[0].choices, ElementsAre("b", "c"));
  EXPECT_EQ(questions[0].gold, 1u);
  EXPECT_EQ(questions[1].context, "");
}

TEST(Choices, FaultsNameTheirLine) {
  const Folder folder;
  const auto refusal = [&](const std::string& line) -> std::string {
    try {
      read_choices(folder.write("q.jsonl", "{\"context\":\"a\",\"choices\":[\"b\"],\"gold\":0}\n" + line + "\n"));
    } catch (const IoError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("{"), HasSubstr("q.jsonl:2: not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("q.jsonl:2: not an object"));
  EXPECT_THAT(refusal("{\"choices\":[\"b\"],\"gold\":0}"), HasSubstr("under \"context\""));
  EXPECT_THAT(refusal("{\"context\":\"a\",\"choices\":[],\"gold\":0}"), HasSubstr("under \"choices\""));
  EXPECT_THAT(refusal("{\"context\":\"a\",\"choices\":[\"b\",\"\"],\"gold\":0}"), HasSubstr("an empty one"));
  EXPECT_THAT(refusal("{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":2}"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal("{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":-1}"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal("{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":0.5}"), HasSubstr("a number from 0 to 1"));
}

TEST(Choices, SpacesAtTheEndOfAContextAreAskedAbout) {
  const ByteTokenizer tokenizer;
  const LikelihoodRequest plain = continuation_request(tokenizer, "ab", " c");
  EXPECT_THAT(plain.tokens, ElementsAre('a', 'b', ' ', 'c'));
  EXPECT_EQ(plain.first_target, 2u);
  EXPECT_EQ(continuation_request(tokenizer, "ab  ", "c").first_target, 2u);
  const LikelihoodRequest start = continuation_request(tokenizer, "", "c");
  EXPECT_THAT(start.tokens, ElementsAre(ByteTokenizer::kEndOfDocument, 'c'));
  EXPECT_EQ(start.first_target, 1u);
  EXPECT_THAT(continuation_request(tokenizer, " ", "c").tokens, ElementsAre(ByteTokenizer::kEndOfDocument, ' ', 'c'));
}

// By hand: the longer choice is less likely as a whole, but more likely a byte.
TEST(Choices, ScoresWithAndWithoutLength) {
  const std::vector<ChoiceQuestion> questions = {{"q", {"ab", "abcdefgh"}, 1}, {"q", {"é", "abc"}, 0}};
  const std::vector<double> likelihoods = {-2.0, -4.0, -2.0, -2.9};
  const ChoiceScores scores = score_choices(questions, likelihoods);
  EXPECT_EQ(scores.questions, 2);
  EXPECT_EQ(scores.right, 1);       // the second: -2 > -2.9
  EXPECT_EQ(scores.right_norm, 1);  // the first: -0.5 > -1; the second has -1 a byte of "é" (2 bytes) against -0.97
  EXPECT_NEAR(standard_error(0.5, 2), 0.5, 1e-12);
}

}  // namespace
}  // namespace espalier::app
