// GoogleTest's main that fails when the filter selects no test: a filter of suites that no longer exist proves nothing.

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 0) return status;
  std::fputs("the filter selects no test\n", stderr);
  return 1;
}
