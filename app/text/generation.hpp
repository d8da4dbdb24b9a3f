#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "espalier/tokenizer.hpp"
#include "model/decoder.hpp"
#include "text/sampling.hpp"

namespace espalier::app {

struct Continuation {
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;       ///< drawn
  bool end_of_document = false;  ///< the model ended the text itself
};

/// Continues one prompt with sequence 0 of a decoder.
/// @param request  what the sampler's random numbers are keyed by, besides their position.
/// @param tokens  drawn at most.
/// @param ignore_end  go on behind an end-of-document id, as if it had not been drawn a last time.
/// @param out  gets the text as it comes, whole characters only.
/// @throws ConfigError for a prompt that is not UTF-8, or empty where the tokenizer has no end-of-document id to start
/// from.
Continuation continue_text(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler, std::string_view prompt,
                           std::int64_t request, std::int64_t tokens, bool ignore_end,
                           const std::function<void(std::string_view)>& out);

/// Ids of a prompt. An empty one is the start of a document.
std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);

}  // namespace espalier::app
