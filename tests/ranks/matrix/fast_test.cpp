#include <gtest/gtest.h>

#include "ranks/matrix/cases.hpp"

namespace espalier::testing_support {
namespace {

TEST(Matrix, LayoutsByTurnsAreOneRanks) { run_matrix(fast_matrix()); }

}  // namespace
}  // namespace espalier::testing_support
