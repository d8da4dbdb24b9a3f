#include "text/tokenizers/unicode_classes.hpp"

#include <algorithm>
#include <vector>

namespace espalier::app {
namespace {

struct Range {
  std::uint32_t first, last;
  std::uint8_t classes;
};

constexpr Range kRanges[] = {
#include "text/tokenizers/unicode_ranges.inc"
};

// The members of the nested class in BLOOM's pattern, and the ( | ) of the outer one.
constexpr char32_t kBloomStops[] = U"(|).,!?…。，、।۔،";

std::vector<std::uint8_t> make_classes() {
  std::vector<std::uint8_t> classes(0x110000);
  for (const Range& range : kRanges) {
    std::fill(classes.begin() + range.first, classes.begin() + range.last + 1, range.classes);
  }
  for (std::uint8_t& bits : classes) {
    if ((bits & kSpace) != 0) bits |= kBloomGap;
  }
  for (const char32_t stop : kBloomStops) {
    if (stop != 0) classes[stop] |= kBloomGap;
  }
  return classes;
}

}  // namespace

const std::uint8_t* unicode_classes() {
  static const std::vector<std::uint8_t> classes = make_classes();
  return classes.data();
}

}  // namespace espalier::app
