#include "text/tokenizers/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "espalier/error.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

utf8proc_option_t options_of(Normalizer::Form form) {
  switch (form) {
    case Normalizer::Form::nfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case Normalizer::Form::nfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case Normalizer::Form::nfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Normalizer::Form::nfkd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return UTF8PROC_STABLE;
}

void append_normalised(std::string_view text, Normalizer::Form form, std::string& out) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    out += text;  // ASCII is in every form
    return;
  }
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  if (length < 0) {
    throw IoError("a text of " + std::to_string(text.size()) +
                  " bytes cannot be normalised: " + utf8proc_errmsg(length));
  }
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(length));
}

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string now(text);
  for (const Form form : forms_) {
    std::string next;
    std::string_view rest = now;
    while (!rest.empty()) {
      const std::size_t bad = std::min(find_invalid_utf8(rest), rest.size());
      append_normalised(rest.substr(0, bad), form, next);
      if (bad < rest.size()) next += rest[bad];
      rest.remove_prefix(std::min(bad + 1, rest.size()));
    }
    now = std::move(next);
  }
  return now;
}

}  // namespace espalier::app
