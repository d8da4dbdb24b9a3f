#pragma once

#include <map>
#include <string>

namespace espalier::app {

/// The tokenizer "bytes" as transformers reads it: names and contents of tokenizer.json (a byte-level BPE without
/// merges, with the same ids) and tokenizer_config.json.
std::map<std::string, std::string> byte_tokenizer_files();

}  // namespace espalier::app
