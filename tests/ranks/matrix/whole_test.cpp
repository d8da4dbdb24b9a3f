#include <gtest/gtest.h>

#include "ranks/matrix/cases.hpp"

namespace espalier::testing_support {
namespace {

TEST(Matrix, AllLayoutsAreOneRanks) { run_matrix(whole_matrix()); }

}  // namespace
}  // namespace espalier::testing_support
