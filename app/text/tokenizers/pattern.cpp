#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizers/pattern.hpp"

#include <pcre2.h>

#include <array>
#include <cstdint>

#include "espalier/error.hpp"
#include "text/tokenizers/unicode_classes.hpp"

namespace espalier::app {
namespace {

std::string message_of(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// What a thread needs while matching; the JIT's own 32 KB of stack do not last for long runs with backtracking.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{64} << 20, nullptr);

  MatchState() { pcre2_jit_stack_assign(context, nullptr, stack); }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& pattern) : code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  // Lines as Ruby has them: ^ and $ at every line.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &error, &at, nullptr);
  if (code_->code == nullptr) {
    throw ConfigError("regular expression \"" + pattern + "\": " + message_of(error) + " (at byte " +
                      std::to_string(at) + ")");
  }
  // Without a JIT on this machine the interpreter does the same, four times slower.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;

void Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  thread_local MatchState state;
  matches.clear();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t at = 0;
  std::size_t last_end = SIZE_MAX;
  while (at <= text.size()) {
    const int found = pcre2_match(code_->code, subject, text.size(), at, 0, state.data, state.context);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      throw IoError("the split pattern gave up on a text of " + std::to_string(text.size()) +
                    " bytes: " + message_of(found));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.data);
    const Span match{offsets[0], offsets[1]};
    if (match.begin == match.end && match.begin == last_end) {
      if (at >= text.size()) return;
      at += read_character(text.data() + at, text.data() + text.size()).length;
      continue;
    }
    matches.push_back(match);
    last_end = match.end;
    at = match.end;
  }
}

}  // namespace espalier::app
