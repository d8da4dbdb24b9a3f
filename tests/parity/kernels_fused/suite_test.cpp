// The kernel suite on the instruction set that ESPALIER_TEST_INSTRUCTION_SET names: oneDNN takes one cap a process, so
// each set is a test of its own. A set that the machine lacks is skipped, and ctest says so.
#include <cstdlib>
#include <memory>
#include <string>

#include "espalier/testing/kernel_suite.hpp"
#include "fused_backend.hpp"

namespace {

std::string instruction_set() {
  const char* asked = std::getenv("ESPALIER_TEST_INSTRUCTION_SET");
  return asked != nullptr ? asked : "auto";
}

std::unique_ptr<espalier::Backend> make_fused(espalier::ThreadPool& pool) {
  return std::make_unique<espalier::kernels_fused::FusedBackend>(instruction_set(), pool);
}

}  // namespace

ESPALIER_INSTANTIATE_KERNEL_SUITE(Fused, espalier::testing::kernel_cases(instruction_set(), make_fused));
