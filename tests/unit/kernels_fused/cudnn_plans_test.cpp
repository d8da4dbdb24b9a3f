// Whether cuDNN has plans for BLOOM's attention, asked without a GPU. Needs a build with cuDNN and its frontend.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cudnn_attention.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

struct Gpu {
  const char* name;
  int sm;
  const char* properties;
};

constexpr Gpu kGpus[] = {
    {"H100", 90,
     R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceName": "NVIDIA H100 80GB HBM3",
         "cudaDeviceId": 0, "deviceId": 0, "deviceVer": 900, "multiProcessorCount": 132, "driverVer": 13000,
         "driverVersion": 13000, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
         "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32,
         "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 9008, "isTccDriver": 0, "supportCoopLaunch": 1,
         "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800, "warpSize": 32,
         "totalGlobalMem": 85000000000})"},
    {"A100", 80,
     R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceName": "NVIDIA A100-SXM4-80GB",
         "cudaDeviceId": 0, "deviceId": 0, "deviceVer": 800, "multiProcessorCount": 108, "driverVer": 13000,
         "driverVersion": 13000, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 166912,
         "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32,
         "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 8370, "isTccDriver": 0, "supportCoopLaunch": 1,
         "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "l2CacheSize": 41943040, "warpSize": 32,
         "totalGlobalMem": 85000000000})"}};

float slopes_stand_in = 0;  // pointers count as given or not; nobody looks behind them
std::byte saved_stand_in{};

/// Training's layout: per head its q, then k, then v.
Attention bloom(std::int64_t batch, std::int64_t heads, std::int64_t head_dim, std::int64_t seq, DType dtype) {
  Attention shape;
  shape.dtype = dtype;
  shape.batch = batch;
  shape.heads = heads;
  shape.head_dim = head_dim;
  shape.queries = shape.keys = seq;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  shape.slopes = &slopes_stand_in;
  const std::int64_t row = 3 * heads * head_dim;
  shape.q = shape.k = shape.v = {nullptr, seq * row, row, 3 * head_dim};
  shape.out = {nullptr, seq * heads * head_dim, heads * head_dim, head_dim};
  shape.saved = View::vector(&saved_stand_in, 1, DType::u8);
  return shape;
}

struct Model {
  const char* name;
  std::int64_t heads, head_dim;
};

constexpr Model kBlooms[] = {{"560m", 16, 64}, {"1b1", 16, 96},  {"1b7", 16, 128},
                             {"3b", 32, 80},   {"7b1", 32, 128}, {"176b", 112, 128}};

class CudnnPlans : public ::testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    const Reason reason = missing(bloom(1, 16, 64, 2048, DType::bf16), false);
    if (reason && reason->find("no cuDNN") != std::string::npos) {
      GTEST_SKIP() << *reason
                   << ": install cuDNN and its frontend's headers, set ESPALIER_CUDNN_FRONTEND to their folder";
    }
  }
  static Reason missing(const Attention& shape, bool backward) {
    return cudnn_without_plan(GetParam().properties, GetParam().sm, shape, backward);
  }
};

TEST_P(CudnnPlans, EveryBloomAtTensorSizes) {
  for (const Model& model : kBlooms) {
    for (const int tensor : {1, 2, 4}) {
      for (const bool backward : {false, true}) {
        const Reason reason = missing(bloom(2, model.heads / tensor, model.head_dim, 2048, DType::bf16), backward);
        EXPECT_FALSE(reason.has_value()) << model.name << ", tensor size " << tensor
                                         << (backward ? ", backward: " : ", forward: ") << *reason;
      }
    }
  }
}

TEST_P(CudnnPlans, OtherLengthsTypesAndLearnedPositions) {
  for (const bool backward : {false, true}) {
    EXPECT_EQ(missing(bloom(1, 16, 64, 2048, DType::f16), backward).value_or("a plan"), "a plan");
    EXPECT_EQ(missing(bloom(8, 16, 64, 1000, DType::bf16), backward).value_or("a plan"), "a plan");
    Attention learned = bloom(2, 12, 64, 1024, DType::bf16);
    learned.slopes = nullptr;
    EXPECT_EQ(missing(learned, backward).value_or("a plan"), "a plan");
  }
}

TEST_P(CudnnPlans, AReasonForWhatItCannotDo) {
  EXPECT_TRUE(missing(bloom(2, 16, 127, 2048, DType::bf16), false).has_value());
  EXPECT_TRUE(missing(bloom(2, 16, 512, 2048, DType::bf16), true).has_value());
}

std::string gpu_name(const ::testing::TestParamInfo<Gpu>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(WithoutAGpu, CudnnPlans, ::testing::ValuesIn(kGpus), gpu_name);

}  // namespace
}  // namespace espalier::kernels_fused::cuda
