#include "element_type.hpp"

#include <array>
#include <limits>

namespace espalier::data_indexed {
namespace {

struct Row {
  ElementType type;
  std::uint8_t code;
  std::int64_t bytes;
  std::string_view name;
  bool integer;
  std::int64_t smallest;
  std::int64_t largest;
};

template <typename T>
constexpr Row integer_row(ElementType type, std::string_view name) {
  return {type,
          static_cast<std::uint8_t>(type),
          sizeof(T),
          name,
          true,
          std::numeric_limits<T>::min(),
          std::numeric_limits<T>::max()};
}

// One table for every property: a type missing from one of two tables is how readers came to refuse valid files.
constexpr std::array<Row, 9> kRows{{
    integer_row<std::uint8_t>(ElementType::uint8, "uint8"),
    integer_row<std::int8_t>(ElementType::int8, "int8"),
    integer_row<std::int16_t>(ElementType::int16, "int16"),
    integer_row<std::int32_t>(ElementType::int32, "int32"),
    integer_row<std::int64_t>(ElementType::int64, "int64"),
    {ElementType::float64, 6, 8, "float64", false, 0, 0},
    {ElementType::float32, 7, 4, "float32", false, 0, 0},
    integer_row<std::uint16_t>(ElementType::uint16, "uint16"),
    {ElementType::float64_code7, 7, 8, "float64", false, 0, 0},
}};

const Row& row_of(ElementType type) {
  for (const Row& row : kRows) {
    if (row.type == type) {
      return row;
    }
  }
  return kRows[0];
}

// Megatron's threshold, well below 65,536, leaves room for special tokens added later.
constexpr std::int64_t kUint16Vocabulary = 65500;

}  // namespace

std::int64_t element_bytes(ElementType type) { return row_of(type).bytes; }

std::uint8_t type_code(ElementType type) { return row_of(type).code; }

std::string_view type_name(ElementType type) { return row_of(type).name; }

std::optional<ElementType> type_of_code(std::uint8_t code) {
  for (const Row& row : kRows) {
    if (row.code == code) {
      return row.type;
    }
  }
  return std::nullopt;
}

std::optional<ElementType> integer_type_of_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.integer && row.name == name) {
      return row.type;
    }
  }
  return std::nullopt;
}

bool is_integer(ElementType type) { return row_of(type).integer; }

std::int64_t smallest_token(ElementType type) { return row_of(type).smallest; }

std::int64_t largest_token(ElementType type) { return row_of(type).largest; }

ElementType type_for_vocabulary(std::int64_t vocabulary_size) {
  return vocabulary_size < kUint16Vocabulary ? ElementType::uint16 : ElementType::int32;
}

}  // namespace espalier::data_indexed
