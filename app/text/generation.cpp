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
  int sequence = 0;
  std::size_t request = kFree;
  std::vector<std::int32_t> feed;  // tokens that the decoder has not seen
  std::vector<std::int32_t> seen;  // prompt and drawn tokens
  Utf8Stream text;
};

/// Places whose tokens go through the stages together.
struct Batch {
  std::vector<Place> places;
  std::vector<Place*> working;       // those on their way, in the order of `tokens`
  std::vector<std::int32_t> tokens;  // where the drawn ones arrive
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
        columns_(static_cast<std::size_t>(decoder.columns())),
        logits_(columns_ * static_cast<std::size_t>(rule.batch)) {
    ESPALIER_ASSERT(rule.batch > 0);
    for (int sequence = 0; sequence < decoder.sequences(); ++sequence) {
      if (sequence % rule.batch == 0) batches_.emplace_back();
      batches_.back().places.emplace_back().sequence = sequence;
    }
  }

  // Batches take turns; while the tokens of one are on their way back from the last stage, the others keep the stages
  // busy.
  std::vector<Continuation> run() {
    for (bool busy = true; busy;) {
      busy = false;
      for (Batch& batch : batches_) {
        take_tokens(batch);
        for (Place& place : batch.places) {
          if (place.request == Place::kFree && next_ < prompts_.size()) begin(place);
          if (place.request != Place::kFree) batch.working.push_back(&place);
        }
        if (batch.working.empty()) continue;
        busy = true;
        draw(batch);
      }
    }
    decoder_.finish();
    return std::move(results_);
  }

 private:
  void begin(Place& place) {
    place.request = next_++;
    place.text = {};
    place.feed = prompt_ids(tokenizer_, prompts_[place.request]);
    place.seen = place.feed;
    results_[place.request].prompt_tokens = std::ssize(place.feed);
    decoder_.reset(place.sequence);
  }

  /// Runs what the decoder has not seen, and lets the drawing rank tell all others what follows.
  void draw(Batch& batch) {
    const std::span<float> logits = std::span(logits_).first(columns_ * batch.working.size());
    parts_.clear();
    for (Place* place : batch.working) {
      if (!rule_.use_cache) {
        decoder_.reset(place->sequence);
        place->feed = place->seen;
      }
      parts_.push_back({place->sequence, place->feed});
    }
    decoder_.extend(parts_, logits, [&](std::size_t part, std::int64_t tokens) {
      const bool prompt = results_[batch.working[part]->request].tokens == 0;
      if (prompt && rule_.read) rule_.read(tokens);
    });
    batch.tokens.assign(batch.working.size(), 0);
    if (drawer_.world->rank() == drawer_.rank) {
      ESPALIER_ASSERT(decoder_.has_logits());
      for (std::size_t i = 0; i < batch.working.size(); ++i) {
        const Place& place = *batch.working[i];
        const Continuation& result = results_[place.request];
        batch.tokens[i] =
            sampler_.draw(logits.subspan(i * columns_, columns_), static_cast<std::int64_t>(place.request),
                          result.prompt_tokens + result.tokens, place.seen);
      }
    }
    const View tokens = View::vector(batch.tokens.data(), std::ssize(batch.tokens), DType::i32);
    batch.arriving = drawer_.world->start_broadcast(tokens, drawer_.rank, host_);
  }

  void take_tokens(Batch& batch) {
    if (batch.working.empty()) return;
    drawer_.world->finish(batch.arriving, host_);
    for (std::size_t i = 0; i < batch.working.size(); ++i) take_token(*batch.working[i], batch.tokens[i]);
    batch.working.clear();
  }

  void take_token(Place& place, std::int32_t token) {
    Continuation& result = results_[place.request];
    ++result.tokens;
    result.end_of_document = token == tokenizer_.end_of_document();
    const bool over = result.end_of_document && !rule_.ignore_end;
    if (!over) out_(place.request, place.text.push(tokenizer_.decode({&token, 1})), false);
    if (over || result.tokens == rule_.tokens) {
      out_(place.request, place.text.finish(), true);
      place.request = Place::kFree;
      return;
    }
    place.feed.assign(1, token);
    place.seen.push_back(token);
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  std::span<const std::string> prompts_;
  const GenerationRule& rule_;
  const Drawer& drawer_;
  const TextSink& out_;
  std::vector<Batch> batches_;
  std::size_t next_ = 0;  // first request that has no place yet
  std::vector<Continuation> results_;
  std::size_t columns_;
  std::vector<float> logits_;         // [batch, columns]
  std::vector<Decoder::Part> parts_;  // of the pass at hand
  HostStream host_;
};

}  // namespace

std::vector<Continuation> continue_texts(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler,
                                         std::span<const std::string> prompts, const GenerationRule& rule,
                                         const Drawer& drawer, const TextSink& out) {
  return Generation(decoder, tokenizer, sampler, prompts, rule, drawer, out).run();
}

}  // namespace espalier::app
