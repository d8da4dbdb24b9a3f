#pragma once

/// Conformance suite of kernel providers: every kernel of every family against oracles in FP64, forward and backward.
/// Include it in one source file of a GoogleTest program that links Espalier::testing, and instantiate it, at namespace
/// scope:
///
///   ESPALIER_INSTANTIATE_KERNEL_SUITE(MyProvider, espalier::testing::kernel_cases("mine", make_my_backend));
///
/// A provider of some families only (they can be overridden one by one) instantiates their suites only:
///
///   INSTANTIATE_TEST_SUITE_P(MyProvider, NormSuite, ::testing::ValuesIn(cases), case_name);  // in espalier::testing
#include "espalier/testing/attention_suite.hpp"
#include "espalier/testing/elementwise_suite.hpp"
#include "espalier/testing/fused_product_suite.hpp"
#include "espalier/testing/loss_suite.hpp"
#include "espalier/testing/matrix_suite.hpp"
#include "espalier/testing/norm_suite.hpp"
#include "espalier/testing/random_suite.hpp"
#include "espalier/testing/update_suite.hpp"

#define ESPALIER_INSTANTIATE_KERNEL_SUITE(prefix, cases)                                      \
  namespace espalier::testing {                                                               \
  INSTANTIATE_TEST_SUITE_P(prefix, AttentionSuite, ::testing::ValuesIn(cases), case_name);    \
  INSTANTIATE_TEST_SUITE_P(prefix, ElementwiseSuite, ::testing::ValuesIn(cases), case_name);  \
  INSTANTIATE_TEST_SUITE_P(prefix, FusedProductSuite, ::testing::ValuesIn(cases), case_name); \
  INSTANTIATE_TEST_SUITE_P(prefix, LossSuite, ::testing::ValuesIn(cases), case_name);         \
  INSTANTIATE_TEST_SUITE_P(prefix, MatrixSuite, ::testing::ValuesIn(cases), case_name);       \
  INSTANTIATE_TEST_SUITE_P(prefix, NormSuite, ::testing::ValuesIn(cases), case_name);         \
  INSTANTIATE_TEST_SUITE_P(prefix, RandomSuite, ::testing::ValuesIn(cases), case_name);       \
  INSTANTIATE_TEST_SUITE_P(prefix, UpdateSuite, ::testing::ValuesIn(cases), case_name);       \
  }                                                                                           \
  static_assert(true, "a semicolon follows")
