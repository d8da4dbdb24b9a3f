#include "array_file.hpp"

#include <unistd.h>

#include <cerrno>

#include "fail.hpp"

namespace espalier::data_indexed {

std::string check_path(const std::string& array) { return array + ".check"; }

std::optional<std::string> difference(std::string_view cached, std::string_view now) {
  while (!now.empty()) {
    const auto line_of = [](std::string_view& text) {
      const auto end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      return line;
    };
    const std::string_view before = line_of(cached);
    const std::string_view wanted = line_of(now);
    if (before != wanted) {
      return "it was made with \"" + std::string(before) + "\", now it is \"" + std::string(wanted) + "\"";
    }
  }
  return std::nullopt;
}

std::optional<ArrayFile> ArrayFile::open(const std::string& path, BlockCheck check, const Shape& shape,
                                         std::string_view narrow, std::string_view wide, std::string& why) {
  auto array = NpyArray::open(path, why);
  if (!array) {
    return std::nullopt;
  }
  if (array->shape() != shape || (array->descr() != narrow && array->descr() != wide)) {
    why = path + ": is not an array of " + std::to_string(shape[0]) + " rows of type " + std::string(narrow);
    return std::nullopt;
  }
  if (static_cast<std::int64_t>(array->mapping()->size_bytes()) != check.bytes) {
    why = path + ": has " + std::to_string(array->mapping()->size_bytes()) + " bytes, " + std::to_string(check.bytes) +
          " were written";
    return std::nullopt;
  }
  auto checked = std::make_shared<const CheckedFile>(array->mapping(), std::move(check), check_path(path));
  return ArrayFile{std::move(*array), std::move(checked)};
}

void ArrayOutput::store_check(const std::string& settings, bool sync) {
  BlockCheck check{settings, hasher_.bytes(), {}};
  check.blocks = hasher_.finish();
  const std::string text = check.to_text();
  check_.write(text.data(), text.size());
  sync ? check_.sync() : check_.finish();
}

void ArrayOutput::remove_other_check(const std::string& settings) const {
  std::string ignored;
  const auto old = BlockCheck::read(check_.path(), ignored);
  if (old && old->settings == settings) {
    return;
  }
  if (::unlink(check_.path().c_str()) != 0 && errno != ENOENT) {
    fail_io(check_.path(), "cannot be replaced", errno);
  }
}

}  // namespace espalier::data_indexed
