// D03: writing millions of documents takes memory for their sizes and borders, not for an object each.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "index_writer.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using espalier::testing::TemporaryFolder;

/// Of this process since the last reset, in MiB.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %ld", &kib) == 1) return static_cast<double>(kib) / 1024.0;
  }
  return 0;
}

TEST(WriterMemory, TwoMillionDocuments) {
  const TemporaryFolder folder;
  const double before = peak_mib();
  ASSERT_GT(before, 0);
  IndexWriter writer(folder / "many", ElementType::uint16);
  const std::int32_t token[] = {7};
  for (int k = 0; k < 2'000'000; ++k) {
    writer.add_sequence(std::span<const std::int32_t>(token));
    writer.end_document();
  }
  writer.finish();
  EXPECT_LT(peak_mib(), 80.0) << before << " MiB before";
  EXPECT_EQ(std::filesystem::file_size(folder / "many.idx"), 34U + 12U * 2000000U + 8U * 2000001U);
}

}  // namespace
}  // namespace espalier::data_indexed
