#include "espalier/plugin.hpp"

namespace espalier {

const void* core_identity() {
  static char anchor = 0;
  return &anchor;
}

}  // namespace espalier
