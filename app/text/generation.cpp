#include "text/generation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "espalier/error.hpp"
#include "text/utf8.hpp"

namespace espalier::app {

std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt) {
  if (const std::size_t bad = find_invalid_utf8(prompt); bad != std::string_view::npos) {
    throw ConfigError("prompt: byte " + std::to_string(bad + 1) + " is not UTF-8");
  }
  std::vector<std::int32_t> ids;
  tokenizer.encode(prompt, ids);
  if (ids.empty()) {
    if (tokenizer.end_of_document() < 0)
      throw ConfigError("prompt: is empty, and tokenizer " + tokenizer.fingerprint() + " has no id to start from");
    ids.push_back(tokenizer.end_of_document());
  }
  return ids;
}

namespace {

class HostStream final : public Stream {};

/// A sequence of the decoder, and the request that has it.
struct Place {
  static constexpr std::size_t kFree = static_cast<std::size_t>(-1);
  std::size_t request = kFree;
  std::vector<std::int32_t> feed;  // tokens that the decoder has not seen
  std::vector<std::int32_t> seen;  // prompt and drawn tokens
  Utf8Stream text;
  std::int32_t token = 0;  // where the drawn one arrives
  Request arriving;
};

class Generation {
 public:
  Generation(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler, std::span<const std::string> prompts,
             const GenerationRule& rule, const Drawer& drawer, const TextSink& out)
      : decoder_(decoder),
        tokenizer_(tokenizer),
        sampler_(sampler),
        prompts_(prompts),
        rule_(rule),
        drawer_(drawer),
        out_(out),
        results_(prompts.size()),
        logits_(static_cast<std::size_t>(decoder.columns())) {
    places_.resize(std::min(static_cast<std::size_t>(decoder.sequences()), prompts.size()));
  }

  // Places take turns; while a token of one is on its way back from the last stage, the others keep the stages busy.
  std::vector<Continuation> run() {
    for (bool busy = true; busy;) {
      busy = false;
      for (std::size_t i = 0; i < places_.size(); ++i) {
        Place& place = places_[i];
        if (place.request != Place::kFree) take_token(place);
        if (place.request == Place::kFree && next_ < prompts_.size()) begin(place, static_cast<int>(i));
        if (place.request == Place::kFree) continue;
        busy = true;
        draw(place, static_cast<int>(i));
      }
    }
    decoder_.finish();
    return std::move(results_);
  }

 private:
  void begin(Place& place, int sequence) {
    place.request = next_++;
    place.text = {};
    place.feed = prompt_ids(tokenizer_, prompts_[place.request]);
    place.seen = place.feed;
    results_[place.request].prompt_tokens = static_cast<std::int64_t>(place.feed.size());
    decoder_.reset(sequence);
  }

  /// Runs what the decoder has not seen, and lets the drawing rank tell all others what follows.
  void draw(Place& place, int sequence) {
    if (!rule_.use_cache) {
      decoder_.reset(sequence);
      place.feed = place.seen;
    }
    extend(place, sequence);
    const Continuation& result = results_[place.request];
    if (drawer_.world->rank() == drawer_.rank) {
      ESPALIER_ASSERT(decoder_.has_logits());
      place.token = sampler_.draw(logits_, static_cast<std::int64_t>(place.request),
                                  result.prompt_tokens + result.tokens, place.seen);
    }
    place.arriving = drawer_.world->start_broadcast(View::vector(&place.token, 1, DType::i32), drawer_.rank, host_);
  }

  /// In parts where somebody wants to see how far it is; they are whole blocks of the decoder, so nothing else changes.
  void extend(const Place& place, int sequence) {
    std::span<const std::int32_t> feed = place.feed;
    constexpr std::size_t kPart = 4 * Decoder::kPromptBlock;
    while (rule_.read && rule_.use_cache && feed.size() > kPart) {
      decoder_.extend(sequence, feed.first(kPart), logits_);
      feed = feed.subspan(kPart);
      rule_.read(kPart);
    }
    decoder_.extend(sequence, feed, logits_);
  }

  void take_token(Place& place) {
    drawer_.world->finish(place.arriving, host_);
    Continuation& result = results_[place.request];
    ++result.tokens;
    result.end_of_document = place.token == tokenizer_.end_of_document();
    const bool over = result.end_of_document && !rule_.ignore_end;
    if (!over) out_(place.request, place.text.push(tokenizer_.decode({&place.token, 1})), false);
    if (over || result.tokens == rule_.tokens) {
      out_(place.request, place.text.finish(), true);
      place.request = Place::kFree;
      return;
    }
    place.feed.assign(1, place.token);
    place.seen.push_back(place.token);
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  std::span<const std::string> prompts_;
  const GenerationRule& rule_;
  const Drawer& drawer_;
  const TextSink& out_;
  std::vector<Place> places_;
  std::size_t next_ = 0;  // first request that has no place yet
  std::vector<Continuation> results_;
  std::vector<float> logits_;
  HostStream host_;
};

}  // namespace

std::vector<Continuation> continue_texts(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler,
                                         std::span<const std::string> prompts, const GenerationRule& rule,
                                         const Drawer& drawer, const TextSink& out) {
  return Generation(decoder, tokenizer, sampler, prompts, rule, drawer, out).run();
}

}  // namespace espalier::app
