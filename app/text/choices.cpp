#include "text/choices.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "espalier/error.hpp"
#include "text/byte_source.hpp"
#include "text/line_reader.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLongest = std::int64_t{16} << 20;  // bytes of a line: a question, not a library

const Json* first_of(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto found = object.find(key); found != object.end()) return &*found;
  }
  return nullptr;
}

/// @throws std::string: what is wrong.
ChoiceQuestion question_of(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) throw std::string("not JSON");
  if (!json.is_object()) throw std::string("not an object");
  const Json* context = first_of(json, {"context", "query"});
  const Json* choices = first_of(json, {"choices"});
  const Json* gold = first_of(json, {"gold", "label"});
  if (context == nullptr || !context->is_string())
    throw std::string("expected a text under \"context\" (or \"query\")");
  if (choices == nullptr || !choices->is_array() || choices->empty())
    throw std::string("expected a list under \"choices\"");
  ChoiceQuestion question;
  question.context = context->get<std::string>();
  for (const Json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      throw std::string("a choice is no text, or an empty one");
    question.choices.push_back(choice.get<std::string>());
  }
  if (gold == nullptr || !gold->is_number_integer() || *gold < 0 || *gold >= choices->size()) {
    throw "expected a number from 0 to " + std::to_string(choices->size() - 1) + " under \"gold\" (or \"label\")";
  }
  question.gold = gold->get<std::size_t>();
  return question;
}

}  // namespace

std::vector<ChoiceQuestion> read_choices(const std::string& file) {
  const auto source = open_unpacked(file);
  LineReader lines(*source, 0, kLongest);
  lines.skip_if("\xEF\xBB\xBF");
  std::vector<ChoiceQuestion> questions;
  while (const auto line = lines.next()) {
    if (line->text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      if (line->too_long) throw "a line of more than " + std::to_string(kLongest) + " bytes";
      questions.push_back(question_of(line->text));
    } catch (const std::string& what) {
      throw IoError(full_path(file) + ":" + std::to_string(lines.number()) + ": " + what);
    }
  }
  if (questions.empty()) throw IoError(full_path(file) + ": no question in it");
  return questions;
}

LikelihoodRequest continuation_request(const Tokenizer& tokenizer, std::string_view context,
                                       std::string_view continuation) {
  std::string all(context);
  all += continuation;
  const std::size_t last = context.find_last_not_of(" \t\r\n\v\f");
  const std::string_view stripped = context.substr(0, last == std::string_view::npos ? 0 : last + 1);
  LikelihoodRequest request;
  std::vector<std::int32_t> before;
  tokenizer.encode(stripped, before);
  if (before.empty()) {
    if (tokenizer.end_of_document() < 0) {
      throw ConfigError("a context is empty, and tokenizer " + tokenizer.fingerprint() +
                        " has no id that starts a document");
    }
    request.tokens.push_back(tokenizer.end_of_document());
  }
  request.first_target = std::max<std::size_t>(before.size(), 1);
  tokenizer.encode(all, request.tokens);
  if (request.first_target >= request.tokens.size()) {
    throw ConfigError("choice \"" + std::string(continuation) + "\" has no token of its own behind its context");
  }
  return request;
}

ChoiceScores score_choices(std::span<const ChoiceQuestion> questions, std::span<const double> likelihoods) {
  ChoiceScores scores;
  std::size_t at = 0;
  for (const ChoiceQuestion& question : questions) {
    const auto own = likelihoods.subspan(at, question.choices.size());
    at += own.size();
    std::size_t best = 0, best_norm = 0;
    const auto norm = [&](std::size_t k) { return own[k] / static_cast<double>(question.choices[k].size()); };
    for (std::size_t k = 1; k < own.size(); ++k) {
      if (own[k] > own[best]) best = k;
      if (norm(k) > norm(best_norm)) best_norm = k;
    }
    ++scores.questions;
    scores.right += best == question.gold;
    scores.right_norm += best_norm == question.gold;
  }
  return scores;
}

double standard_error(double share, std::int64_t count) {
  return count > 1 ? std::sqrt(share * (1 - share) / static_cast<double>(count - 1)) : 0;
}

}  // namespace espalier::app
