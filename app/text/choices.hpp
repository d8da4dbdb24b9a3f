#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/tokenizer.hpp"
#include "train/likelihood.hpp"

namespace espalier::app {

/// A question with several answers, of which one is right.
struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> choices;
  std::size_t gold = 0;
};

/// A JSONL file of {"context" or "query": text, "choices": [text, …], "gold" or "label": place of the right one, from
/// 0}.
/// @throws IoError with file and line.
std::vector<ChoiceQuestion> read_choices(const std::string& file);

/// Tokens of a context with a continuation behind it, as evaluation harnesses cut them (lm-evaluation-harness,
/// `_encode_pair`): spaces at the end of the context belong to the continuation, both are encoded together, and the
/// continuation is what follows as many tokens as the context has alone. An empty context is the start of a document.
/// @throws ConfigError when nothing is left to ask about, or an empty context has no id to stand for it.
LikelihoodRequest continuation_request(const Tokenizer& tokenizer, std::string_view context,
                                       std::string_view continuation);

struct ChoiceScores {
  std::int64_t questions = 0;
  std::int64_t right = 0;       ///< the likeliest choice is the right one; of equals the first counts
  std::int64_t right_norm = 0;  ///< by log-likelihood over the choice's bytes
  double accuracy() const { return questions > 0 ? static_cast<double>(right) / static_cast<double>(questions) : 0; }
  double accuracy_norm() const {
    return questions > 0 ? static_cast<double>(right_norm) / static_cast<double>(questions) : 0;
  }
};

/// @param likelihoods  of all choices of all questions, in order.
ChoiceScores score_choices(std::span<const ChoiceQuestion> questions, std::span<const double> likelihoods);

/// Standard error of a share of `count` draws.
double standard_error(double share, std::int64_t count);

}  // namespace espalier::app
