// Stream capture in the fake, by the rules of the real runtime.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "controls.hpp"
#include "queue.hpp"

namespace {

class FakeCapture : public ::testing::Test {
 public:
  ~FakeCapture() override {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(streams_[0], &graph) == cudaSuccess) cudaGraphDestroy(graph);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaEventDestroy(event_);
    fake::forget_error();
    cudaGetLastError();
  }

 protected:
  FakeCapture() {
    for (cudaStream_t& stream : streams_) {
      EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }

  void append(int stream, char letter) {
    fake::enqueue(streams_[stream], "append", [this, letter] {
      text_ += letter;
      return true;
    });
  }
  void begin() { ASSERT_EQ(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal), cudaSuccess); }
  /// The graph of "abc" on stream 0.
  cudaGraphExec_t letters() {
    begin();
    for (const char letter : {'a', 'b', 'c'}) append(0, letter);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(streams_[0], &graph), cudaSuccess);
    std::size_t nodes = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 3u);
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }
  /// What a capture comes to in which `call` was made.
  template <class Call>
  cudaError_t spoiled(Call&& call) {
    begin();
    append(0, 'a');
    call();
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(streams_[0], &graph);
    EXPECT_EQ(graph == nullptr, status != cudaSuccess);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    return status;
  }

  cudaStream_t streams_[2] = {};
  cudaEvent_t event_ = nullptr;
  std::string text_;
};

using FakeCaptureDeathTest = FakeCapture;

TEST_F(FakeCapture, WhatIsCapturedRunsAtEachLaunch) {
  const cudaGraphExec_t executable = letters();
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(text_, "") << "a capture runs nothing";
  append(0, '1');
  EXPECT_EQ(cudaGraphLaunch(executable, streams_[0]), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, streams_[0]), cudaSuccess);
  append(0, '2');
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(text_, "1abcabc2");
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(FakeCapture, LaunchesRunInEveryOrderWithOtherStreams) {
  const cudaGraphExec_t executable = letters();
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    fake::set_seed(seed);
    text_.clear();
    cudaGraphLaunch(executable, streams_[0]);
    for (const char letter : {'x', 'y', 'z'}) append(1, letter);
    cudaDeviceSynchronize();
    orders.insert(text_);
    EXPECT_LT(text_.find('a'), text_.find('b'));
    EXPECT_LT(text_.find('b'), text_.find('c'));
  }
  EXPECT_EQ(orders.size(), 20u);  // 6 over 3
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    fake::set_seed(seed);
    text_.clear();
    cudaGraphLaunch(executable, streams_[0]);
    cudaEventRecord(event_, streams_[0]);
    cudaStreamWaitEvent(streams_[1], event_, 0);
    append(1, 'x');
    cudaDeviceSynchronize();
    EXPECT_EQ(text_, "abcx");
  }
  cudaGraphExecDestroy(executable);
}

TEST_F(FakeCapture, UnsafeCallsSpoilIt) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 8), cudaSuccess);
  cudaEventRecord(event_, streams_[1]);
  EXPECT_EQ(spoiled([] {}), cudaSuccess);
  const auto unsupported = [&](auto&& call) {
    EXPECT_EQ(spoiled([&] {
                EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
                EXPECT_EQ(cudaMemsetAsync(data, 0, 8, streams_[0]), cudaErrorStreamCaptureInvalidated);
                cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
                cudaStreamIsCapturing(streams_[0], &status);
                EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
              }),
              cudaErrorStreamCaptureInvalidated);
  };
  void* other = nullptr;
  unsupported([&] { return cudaMalloc(&other, 8); });
  unsupported([&] { return cudaFree(data); });
  unsupported([&] { return cudaHostAlloc(&other, 8, cudaHostAllocDefault); });
  unsupported([&] { return cudaStreamSynchronize(streams_[0]); });
  unsupported([&] { return cudaStreamQuery(streams_[0]); });
  unsupported([&] { return cudaDeviceSynchronize(); });
  unsupported([&] { return cudaEventQuery(event_); });
  EXPECT_EQ(spoiled([&] { EXPECT_EQ(cudaStreamSynchronize(streams_[1]), cudaSuccess); }), cudaSuccess);
  cudaFree(data);
}

TEST_F(FakeCapture, EventsDoNotCrossItsBorder) {
  cudaEventRecord(event_, streams_[1]);
  EXPECT_EQ(spoiled([&] { EXPECT_EQ(cudaStreamWaitEvent(streams_[0], event_, 0), cudaErrorStreamCaptureIsolation); }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(spoiled([&] { EXPECT_EQ(cudaEventRecord(event_, streams_[0]), cudaSuccess); }), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  cudaEventRecord(event_, streams_[1]);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(FakeCapture, ItHasABeginAndAnEnd) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(streams_[0], &graph), cudaErrorInvalidValue);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal), cudaErrorInvalidValue);
}

TEST_F(FakeCaptureDeathTest, WhatWouldGoWrongOnADeviceEndsTheProcess) {
  const cudaGraphExec_t executable = letters();
  EXPECT_DEATH(
      {
        cudaGraphLaunch(executable, streams_[0]);
        cudaGraphExecDestroy(executable);
      },
      "a graph that is still to run");
  cudaGraphExecDestroy(executable);
  EXPECT_DEATH(cudaGraphLaunch(executable, streams_[0]), "does not exist");
  EXPECT_DEATH(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeGlobal), "another mode");
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 8), cudaSuccess);
  const std::uint64_t host = 0;
  EXPECT_DEATH(spoiled([&] { cudaMemcpyAsync(data, &host, 8, cudaMemcpyDefault, streams_[0]); }),
               "a captured copy from pageable memory");
  EXPECT_DEATH(spoiled([&] {
                 cudaEventRecord(event_, streams_[0]);
                 cudaStreamWaitEvent(streams_[1], event_, 0);
               }),
               "a capture that another stream joins");
  cudaFree(data);
}

TEST_F(FakeCaptureDeathTest, LaunchesOnFreedMemoryAreFound) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 8), cudaSuccess);
  begin();
  cudaMemsetAsync(data, 0, 8, streams_[0]);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(streams_[0], &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaFree(data);
  EXPECT_DEATH(
      {
        cudaGraphLaunch(executable, streams_[0]);
        cudaStreamSynchronize(streams_[0]);
      },
      "memset touched memory that is not its own .*of freed reservation");
  cudaGraphExecDestroy(executable);
}

}  // namespace
