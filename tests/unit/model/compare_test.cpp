#include "interop/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

class Compare : public ::testing::Test {
 protected:
  using Tensors = std::vector<std::pair<std::string, std::vector<float>>>;

  std::vector<TensorError> compare(const Tensors& found, const Tensors& reference) {
    const std::filesystem::path folder = ::testing::TempDir();
    write(folder / "found.safetensors", found);
    write(folder / "reference.safetensors", reference);
    return compare_numerics(SafetensorsFile(folder / "found.safetensors"),
                            SafetensorsFile(folder / "reference.safetensors"));
  }

 private:
  static void write(const std::filesystem::path& path, const Tensors& tensors) {
    std::vector<TensorHeader> headers;
    for (const auto& [name, values] : tensors)
      headers.push_back({name, DType::f32, {static_cast<std::int64_t>(values.size())}});
    SafetensorsWriter writer(path, headers);
    for (const auto& [name, values] : tensors) writer.write(std::as_bytes(std::span(values)));
    writer.finish();
  }
};

TEST_F(Compare, LargestErrorByTensorWorstFirst) {
  const auto errors = compare({{"loss", {2.0f}}, {"grad.transformer.a", {1.0f, 1.5f, 1.0f, 1.0f}}, {"extra", {1}}},
                              {{"grad.a", {1.0f, 1.0f, 1.0f, 1.0f}}, {"loss", {2.0f}}, {"input_ids", {9}}});
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].name, "grad.a");
  EXPECT_EQ(errors[0].at, 1);
  EXPECT_NEAR(errors[0].relative(), 0.5, 1e-6);
  EXPECT_TRUE(errors[0].above(0.4));
  EXPECT_FALSE(errors[0].above(0.6));
  EXPECT_EQ(errors[1].relative(), 0);
  std::ostringstream text;
  print(text, errors);
  EXPECT_THAT(text.str(), ::testing::HasSubstr("grad.a"));
}

TEST_F(Compare, NoiseWhereTheReferenceIsZeroIsNoError) {
  EXPECT_FALSE(compare({{"grad.a", {5e-9f}}}, {{"grad.a", {0.0f}}})[0].above(0));
  EXPECT_TRUE(compare({{"grad.a", {1e-6f}}}, {{"grad.a", {0.0f}}})[0].above(1e9));
}

TEST_F(Compare, NanIsAlwaysAbove) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(compare({{"loss", {nan}}}, {{"loss", {1.0f}}})[0].above(1e9));
  EXPECT_TRUE(compare({{"loss", {1.0f}}}, {{"loss", {nan}}})[0].above(1e9));
}

TEST_F(Compare, WhatCannotBeComparedIsAbove) {
  const auto missing = compare({{"loss", {1.0f}}}, {{"loss", {1.0f}}, {"logits", {1.0f}}});
  EXPECT_EQ(missing[0].name, "logits");
  EXPECT_TRUE(missing[0].above(1e9));
  EXPECT_TRUE(compare({{"loss", {1.0f, 2.0f}}}, {{"loss", {1.0f}}})[0].above(1e9));
  EXPECT_THROW(compare({{"loss", {1.0f}}}, {{"weights", {1.0f}}}), IoError);
}

}  // namespace
}  // namespace espalier::app
