// The fake runtime finds what it is there to find.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "controls.hpp"
#include "queue.hpp"

namespace {

class FakeCuda : public ::testing::Test {
 protected:
  FakeCuda() {
    for (cudaStream_t& stream : streams_) {
      EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  ~FakeCuda() override {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaEventDestroy(event_);
    fake::ignore_wait(0);
    fake::forget_error();
  }

  static std::byte* device(std::size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    return static_cast<std::byte*>(data);
  }
  void append(int stream, char letter) {
    fake::enqueue(streams_[stream], "append", [this, letter] {
      text_ += letter;
      return true;
    });
  }
  /// What "abc" on stream 0 and "xyz" on stream 1 become, with and without a wait of the second for the first.
  std::string letters(std::uint64_t seed, bool wait) {
    fake::set_seed(seed);
    text_.clear();
    for (const char letter : {'a', 'b', 'c'}) append(0, letter);
    if (wait) {
      cudaEventRecord(event_, streams_[0]);
      cudaStreamWaitEvent(streams_[1], event_, 0);
    }
    for (const char letter : {'x', 'y', 'z'}) append(1, letter);
    EXPECT_EQ(text_, "") << "work ran before the host waited";
    cudaStreamSynchronize(streams_[1]);
    cudaStreamSynchronize(streams_[0]);
    return text_;
  }

  cudaStream_t streams_[2] = {};
  cudaEvent_t event_ = nullptr;
  std::string text_;
};

using FakeCudaDeathTest = FakeCuda;

TEST_F(FakeCudaDeathTest, TheHostCannotTouchDeviceMemory) {
  std::byte* data = device(100);
  EXPECT_DEATH(data[40] = std::byte{1},
               "the host touched device memory at .*byte 40 of reservation [0-9]+ \\(100 bytes\\)");
  cudaFree(data);
}

TEST_F(FakeCudaDeathTest, WorkOnFreedMemoryIsFound) {
  std::byte* data = device(100);
  cudaMemsetAsync(data, 0, 100, streams_[0]);
  cudaFree(data);
  EXPECT_DEATH(cudaStreamSynchronize(streams_[0]), "memset touched memory that is not its own .*of freed reservation");
  fake::fault_at("memset");  // so that the work goes without harm
}

TEST_F(FakeCudaDeathTest, WritingOverTheEndIsFound) {
  std::byte* data = device(100);
  fake::enqueue(streams_[0], "kernel", [data] {
    data[100] = std::byte{0};
    return true;
  });
  cudaStreamSynchronize(streams_[0]);
  EXPECT_DEATH(cudaFree(data), "written outside: byte 100 of reservation");
  std::byte* page = device(4096);
  fake::enqueue(streams_[0], "kernel", [page] {
    page[4096] = std::byte{0};
    return true;
  });
  EXPECT_DEATH(cudaStreamSynchronize(streams_[0]),
               "kernel touched memory that is not its own .*byte 4096 of reservation");
  fake::fault_at("kernel");
}

TEST_F(FakeCudaDeathTest, CopiesStayInsideOneReservation) {
  std::byte* data = device(100);
  std::vector<std::byte> host(101);
  EXPECT_DEATH(cudaMemcpyAsync(data, host.data(), 101, cudaMemcpyDefault, streams_[0]), "not one live reservation");
  EXPECT_DEATH(cudaMemset2DAsync(data, 60, 0, 50, 2, streams_[0]), "not one live reservation");
  cudaFree(data);
}

TEST_F(FakeCudaDeathTest, TheDefaultStreamIsRefused) {
  std::byte* data = device(8);
  EXPECT_DEATH(cudaMemsetAsync(data, 0, 8, nullptr), "on a default stream");
  cudaFree(data);
}

TEST_F(FakeCuda, NewMemoryIsPoison) {
  std::byte* data = device(100);
  std::vector<unsigned char> host(100, 1);
  cudaMemcpyAsync(host.data(), data, 100, cudaMemcpyDefault, streams_[0]);
  EXPECT_EQ(host[0], 1) << "a copy was over before the host waited";
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(host, std::vector<unsigned char>(100, 0xFF));
  cudaFree(data);
}

TEST_F(FakeCuda, StreamsRunInEveryOrderButTheirOwn) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string order = letters(seed, false);
    ASSERT_EQ(order.size(), 6u);
    EXPECT_LT(order.find('a'), order.find('b'));
    EXPECT_LT(order.find('b'), order.find('c'));
    orders.insert(order);
    EXPECT_EQ(letters(seed, false), order) << "a seed gives one order";
  }
  EXPECT_EQ(orders.size(), 20u);  // 6 over 3
}

TEST_F(FakeCuda, EventsAreRespectedAndTheirLackShows) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(letters(seed, true), "abcxyz");
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    fake::ignore_wait(1);
    wrong += letters(seed, true) != "abcxyz" ? 1 : 0;
  }
  EXPECT_GT(wrong, 25);
}

TEST_F(FakeCuda, AWaitIsForTheRecordBeforeIt) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    fake::set_seed(seed);
    text_.clear();
    append(0, 'a');
    cudaEventRecord(event_, streams_[0]);
    cudaStreamWaitEvent(streams_[1], event_, 0);
    append(1, 'x');
    cudaStreamWaitEvent(streams_[0], event_, 0);  // long past
    fake::enqueue(streams_[0], "after x", [this] { return text_.find('x') != std::string::npos; });
    cudaEventRecord(event_, streams_[0]);  // a later record, which x must not wait for
    cudaStreamSynchronize(streams_[0]);
    cudaStreamSynchronize(streams_[1]);
    EXPECT_EQ(text_, "ax");
  }
}

TEST_F(FakeCuda, PinnedSourcesAreReadLateAndPageableOnesAtOnce) {
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 4, cudaHostAllocDefault), cudaSuccess);
  int pageable = 1;
  std::memcpy(pinned, &pageable, sizeof pageable);
  std::byte* data = device(8);
  cudaMemcpyAsync(data, pinned, 4, cudaMemcpyDefault, streams_[0]);
  cudaMemcpyAsync(data + 4, &pageable, 4, cudaMemcpyDefault, streams_[0]);
  pageable = 2;
  std::memcpy(pinned, &pageable, sizeof pageable);
  int back[2] = {};
  cudaMemcpyAsync(back, data, 8, cudaMemcpyDefault, streams_[0]);
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(back[0], 2);
  EXPECT_EQ(back[1], 1);
  cudaFree(data);
  cudaFreeHost(pinned);
}

TEST_F(FakeCuda, WorkThatIsNotReadyLetsOtherStreamsGoOn) {
  int polled = 0;
  fake::enqueue(streams_[0], "receive", [&] {
    ++polled;
    return text_ == "x";  // comes from the other stream, as a message does from another rank
  });
  append(0, 'a');
  append(1, 'x');
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(text_, "xa");
  EXPECT_GE(polled, 1);
}

TEST_F(FakeCuda, QueriesGetThere) {
  append(0, 'a');
  cudaEventRecord(event_, streams_[0]);
  int queries = 0;
  while (cudaEventQuery(event_) == cudaErrorNotReady) ++queries;
  EXPECT_LT(queries, 1000);
  EXPECT_EQ(cudaStreamQuery(streams_[0]), cudaSuccess);
}

TEST_F(FakeCuda, ErrorsStick) {
  cudaGetLastError();  // "not ready" of queries before
  fake::enqueue(streams_[0], "kernel", []() -> bool { throw std::runtime_error("broken"); });
  append(0, 'a');
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams_[0]), cudaErrorLaunchFailure);
  EXPECT_EQ(text_, "") << "work after a fault";
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure) << "not forgotten by asking";
}

}  // namespace
