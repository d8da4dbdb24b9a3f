#include "text/tokenizers/content.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "espalier/error.hpp"

namespace espalier::app {

std::string read_content(const std::filesystem::path& file) {
  const std::string name = std::filesystem::absolute(file).lexically_normal().string();
  if (std::filesystem::is_directory(file)) throw IoError(name + ": is a folder; name the tokenizer's file in it");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(name.c_str(), "rb"), std::fclose);
  if (!stream) throw IoError(name, "cannot be opened", errno);
  std::string content;
  char block[1 << 16];
  while (const std::size_t got = std::fread(block, 1, sizeof(block), stream.get())) content.append(block, got);
  if (std::ferror(stream.get()) != 0) throw IoError(name, "cannot be read", errno);
  return content;
}

std::string content_hash(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace espalier::app
