// Main of the single-process tests: as gtest_main, but a program in which no test ran fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const auto& all = *testing::UnitTest::GetInstance();
  if (all.test_to_run_count() == 0 && !testing::GTEST_FLAG(list_tests)) {
    std::fputs("no test ran\n", stderr);
    return 1;
  }
  return status;
}
