#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/tokenizer.hpp"
#include "model/decoder.hpp"
#include "text/sampling.hpp"

namespace espalier::app {

struct Continuation {
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;       ///< drawn
  bool end_of_document = false;  ///< the model ended the text itself
};

struct GenerationRule {
  std::int64_t tokens = 1;  ///< drawn for each prompt, at most
  bool ignore_end = false;  ///< go on behind an end-of-document id, as if it had not been drawn a last time
  int batch = 1;            ///< requests that go through the stages together
  bool use_cache = true;    ///< false: each token is computed from the whole text again, to compare with
  /// Gets the tokens of prompts as they are worked off; may be empty.
  std::function<void(std::int64_t tokens)> read;
};

/// Who draws: one rank of those that have logits, for all of them.
struct Drawer {
  Communicator* world = nullptr;  ///< of host memory
  int rank = 0;                   ///< in it
};

/// Gets the text of a request as it comes, whole characters only; the last part may be empty.
using TextSink = std::function<void(std::size_t request, std::string_view text, bool last)>;

/// Continues prompts, as many at once as the decoder has sequences: a batch for each stage keeps all stages at work,
/// and a request that is over makes room for the next. A batch is one forward pass, whatever lengths its texts have: a
/// weight is read once for all of them. Where a provider's matrix product rounds a row alike however many there are,
/// what runs beside a request changes no bit of it; in any case draws do not depend on it. Collective: every rank calls
/// it alike, and knows all tokens.
/// @param sampler  its random numbers are keyed by request (place in `prompts`) and position.
/// @throws ConfigError for a prompt that is not UTF-8, or empty where the tokenizer has no end-of-document id to start
/// from; NumericsError on the drawing rank alone when the logits are not finite.
std::vector<Continuation> continue_texts(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler,
                                         std::span<const std::string> prompts, const GenerationRule& rule,
                                         const Drawer& drawer, const TextSink& out);

/// Ids of a prompt. An empty one is the start of a document.
std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);

}  // namespace espalier::app
