#include "interop/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

class Safetensors : public ::testing::Test {
 protected:
  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      ("safetensors_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  /// A file with this header text and so many bytes of data.
  void write(const std::string& header, std::size_t data, std::uint64_t length = 0) {
    std::ofstream file(path_, std::ios::binary);
    if (length == 0) length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header << std::string(data, '\1');
  }
  std::string refusal() {
    try {
      const SafetensorsFile file(path_);
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(path_.string()));
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  const float values[] = {1.5f, -2.0f, 3.25f, 0.0f, 7.0f, 8.0f};
  const std::int64_t ids[] = {5, -6};
  {
    SafetensorsWriter writer(path_,
                             {{"b.weight", DType::f32, {2, 3}}, {"ids", DType::i64, {2}}, {"none", DType::f32, {0, 4}}},
                             {{"format", "pt"}});
    writer.write(std::as_bytes(std::span(values)));
    writer.write(std::as_bytes(std::span(ids)));
    EXPECT_FALSE(std::filesystem::exists(path_));
    writer.finish();
  }
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const FileTensor& weight = file.at("b.weight");
  EXPECT_EQ(weight.shape_text(), "[2, 3]");
  std::vector<float> read(4);
  read_f32(weight, 2, read);
  EXPECT_EQ(read, (std::vector<float>{3.25f, 0.0f, 7.0f, 8.0f}));
  EXPECT_EQ(read_i64(file.at("ids")), (std::vector<std::int64_t>{5, -6}));
  EXPECT_EQ(file.at("none").elements(), 0);
  EXPECT_THROW(read_i64(weight), IoError);
  EXPECT_THROW(read_f32(file.at("ids"), 0, std::span(read).first(2)), IoError);
}

TEST_F(Safetensors, AWriterThatDoesNotFinishLeavesNothing) {
  { SafetensorsWriter writer(path_, {{"a", DType::f32, {1}}}); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".partial"));
  SafetensorsWriter writer(path_, {{"a", DType::f32, {2}}});
  const float one = 1;
  writer.write(std::as_bytes(std::span(&one, 1)));
  EXPECT_THROW(writer.finish(), IoError);
}

TEST_F(Safetensors, SixteenBitsAreWidened) {
  write(
      R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
      0);
  std::ofstream(path_, std::ios::binary | std::ios::app) << std::string("\xC0\x3F\x00\x3E", 4);
  const SafetensorsFile file(path_);
  float value = 0;
  read_f32(file.at("a"), 0, std::span(&value, 1));
  EXPECT_EQ(value, 1.5f);
  read_f32(file.at("b"), 0, std::span(&value, 1));
  EXPECT_EQ(value, 1.5f);
}

TEST_F(Safetensors, AMissingTensorNamesTheNearest) {
  write(R"({"ln_f.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  const SafetensorsFile file(path_);
  try {
    file.at("ln_f.wieght");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean \"ln_f.weight\""));
  }
}

TEST_F(Safetensors, EveryDamagedHeaderIsRefused) {
  using ::testing::HasSubstr;
  const std::string tensor = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(refusal(), HasSubstr("cannot open"));
  std::ofstream(path_) << "short";
  EXPECT_THAT(refusal(), HasSubstr("too few"));
  write("{" + tensor + "}", 8, 1 << 20);
  EXPECT_THAT(refusal(), HasSubstr("does not fit"));
  write("{" + tensor, 8);
  EXPECT_THAT(refusal(), HasSubstr("no JSON"));
  write(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("tensor \"a\": \"dtype\" occurs twice"));
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":)" + std::string(100000, '['), 8);
  EXPECT_THAT(refusal(), HasSubstr("nested too deeply"));
  write(" {" + tensor + "}", 8);
  EXPECT_THAT(refusal(), HasSubstr("no JSON object"));
  write("[1, 2]", 0);
  EXPECT_THAT(refusal(), HasSubstr("no JSON object"));
  write("{" + tensor + "," + tensor + "}", 8);
  EXPECT_THAT(refusal(), HasSubstr("twice"));
  write("{" + tensor + "}", 7);
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
  write("{" + tensor + "}", 9);
  EXPECT_THAT(refusal(), HasSubstr("9 bytes of data"));
  write(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("unknown dtype \"F31\""));
  write(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("dimension"));
  write(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("takes 12 bytes"));
  write(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("overflows"));
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("data_offsets"));
  write(R"({"a":{"dtype":"F32","shape":[2]}})", 8);
  EXPECT_THAT(refusal(), HasSubstr("needs dtype, shape and data_offsets"));
  write("{" + tensor + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12);
  EXPECT_THAT(refusal(), HasSubstr("overlap"));
  write("{" + tensor + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16);
  EXPECT_THAT(refusal(), HasSubstr("hole"));
  write(R"({"__metadata__":{"a":1}})", 0);
  EXPECT_THAT(refusal(), HasSubstr("__metadata__"));
}

}  // namespace
}  // namespace espalier::app
