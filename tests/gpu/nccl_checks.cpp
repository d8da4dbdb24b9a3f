// NCCL itself with one rank, as the plugin uses it: two groups with streams of their own, in flight together. A group
// of one never gets to NCCL in the plugin.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <numeric>
#include <vector>

#include "fused_cuda_backend.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr std::size_t kElements = 100'003;

#define ASSERT_NCCL(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *source = nullptr, *target = nullptr;
};

void open(Group& group, const std::vector<float>& numbers) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ASSERT_NCCL(ncclCommInitRank(&group.comm, 1, id, 0));
  ASSERT_EQ(cudaStreamCreateWithFlags(&group.stream, cudaStreamNonBlocking), cudaSuccess);
  void *source = nullptr, *target = nullptr;
  ASSERT_EQ(cudaMalloc(&source, kElements * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&target, kElements * sizeof(float)), cudaSuccess);
  group.source = static_cast<float*>(source);
  group.target = static_cast<float*>(target);
  ASSERT_EQ(cudaMemcpyAsync(source, numbers.data(), kElements * sizeof(float), cudaMemcpyDefault, group.stream),
            cudaSuccess);
}

/// Source to target and back, each way by another call.
void circle(const Group& group) {
  ASSERT_NCCL(ncclAllReduce(group.source, group.target, kElements, ncclFloat32, ncclSum, group.comm, group.stream));
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclSend(group.target, kElements, ncclFloat32, 0, group.comm, group.stream));
  ASSERT_NCCL(ncclRecv(group.source, kElements, ncclFloat32, 0, group.comm, group.stream));
  ASSERT_NCCL(ncclGroupEnd());
  ASSERT_NCCL(ncclReduceScatter(group.source, group.target, kElements, ncclFloat32, ncclSum, group.comm, group.stream));
  ASSERT_NCCL(ncclAllGather(group.target, group.source, kElements, ncclFloat32, group.comm, group.stream));
}

TEST(NcclChecks, TwoGroupsOfOneRank) {
  const FusedCudaBackend backend{Settings{}};  // first: NCCL reads what it says to the environment
  int version = 0;
  ASSERT_NCCL(ncclGetVersion(&version));
  EXPECT_GE(version, 22600);
  std::vector<float> numbers(kElements), back(kElements);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  std::array<Group, 2> groups;
  for (Group& group : groups) ASSERT_NO_FATAL_FAILURE(open(group, numbers));
  for (int round = 0; round < 20; ++round) {
    for (const Group& group : groups) ASSERT_NO_FATAL_FAILURE(circle(group));
  }
  for (const Group& group : groups) {
    ASSERT_EQ(cudaMemcpyAsync(back.data(), group.source, kElements * sizeof(float), cudaMemcpyDefault, group.stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(group.stream), cudaSuccess);
    EXPECT_EQ(back, numbers);
    ncclResult_t status = ncclSuccess;
    ASSERT_NCCL(ncclCommGetAsyncError(group.comm, &status));
    EXPECT_EQ(status, ncclSuccess);
  }
  ASSERT_NCCL(ncclCommDestroy(groups[0].comm));
  ASSERT_NCCL(ncclCommAbort(groups[1].comm));
  for (const Group& group : groups) {
    EXPECT_EQ(cudaFree(group.source), cudaSuccess);
    EXPECT_EQ(cudaFree(group.target), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(group.stream), cudaSuccess);
  }
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
