// The reference kernels against oracles in FP64.
#include "espalier/testing/kernel_suite.hpp"

ESPALIER_INSTANTIATE_KERNEL_SUITE(Reference,
                                  espalier::testing::kernel_cases("reference", espalier::make_reference_backend));
