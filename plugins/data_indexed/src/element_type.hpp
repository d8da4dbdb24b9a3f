#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier::data_indexed {

/// What one element of a .bin is. The values are the file's type codes, except that code 7 means float32 to
/// Megatron-LM core and float64 to the bigscience fork; the size of the .bin tells which (float64_code7).
enum class ElementType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float64 = 6,
  float32 = 7,
  uint16 = 8,
  float64_code7 = 0x87,
};

/// Bytes per element.
std::int64_t element_bytes(ElementType type);

/// The code in byte 17 of an .idx.
std::uint8_t type_code(ElementType type);

/// "uint16", "float32", …
std::string_view type_name(ElementType type);

/// The type of a code; 7 gives float32. Empty for codes outside 1..8.
std::optional<ElementType> type_of_code(std::uint8_t code);

/// The integer type of a name ("uint8", "int8", "int16", "uint16", "int32", "int64"), empty for another.
std::optional<ElementType> integer_type_of_name(std::string_view name);

bool is_integer(ElementType type);

/// Smallest and largest token an integer type holds.
std::int64_t smallest_token(ElementType type);
std::int64_t largest_token(ElementType type);

/// The type Megatron's preprocessing picks for a vocabulary: uint16 below 65,500 entries, else int32.
ElementType type_for_vocabulary(std::int64_t vocabulary_size);

}  // namespace espalier::data_indexed
