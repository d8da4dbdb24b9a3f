// Work kept back and sent as CUDA graphs: the same bits, and fewer launches.
#include "graphs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "controls.hpp"
#include "device.hpp"
#include "espalier/error.hpp"
#include "fused_cuda_backend.hpp"
#include "queue.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kCount = 8;

/// x = x · value + kind, as bytes with holes.
struct Step {
  char kind;
  float* data;
  float value;

  void operator()(cudaStream_t stream) const {
    if (kind == 'e') throw DeviceError("cuda: step: not to be started");
    fake::enqueue(stream, "step", [step = *this] {
      for (std::int64_t i = 0; i < kCount; ++i)
        step.data[i] = step.data[i] * step.value + static_cast<float>(step.kind);
      return true;
    });
  }
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class GraphsTest : public ::testing::Test {
 public:
  ~GraphsTest() override {
    device_.wait(compute());
    fake::forget_error();
  }

 protected:
  GraphsTest() : device_(0), memory_(device_.reserve(kCount * sizeof(float), "test")) {}

  Stream& compute() { return device_.lane(Lane::compute); }
  View vector() { return View::vector(memory_.data(), kCount, DType::f32); }
  float read() {
    std::vector<float> values(kCount);
    device_.copy(vector(), View::vector(values.data(), kCount, DType::f32), compute());
    device_.wait(compute());
    return values[0];
  }
  Step step(float value, char kind = 1) { return {kind, vector().as<float>(), value}; }
  /// One segment. @param garbage  what lies between the members of each piece.
  void segment(Graphs& graphs, const std::vector<float>& values, int garbage = 0) {
    for (const float value : values) {
      alignas(Step) unsigned char place[sizeof(Step)];
      std::memset(place, garbage, sizeof place);
      auto* const piece = ::new (place) Step;
      piece->kind = 1;
      piece->data = vector().as<float>();
      piece->value = value;
      graphs.keep(*piece);
    }
    graphs.send();
  }

  CudaDevice device_;
  DeviceMemory memory_;
};

TEST_F(GraphsTest, ASegmentRunsThenIsCapturedThenIsOneLaunch) {
  std::vector<std::string> said;
  Graphs graphs(handle(compute()), [&](const std::string& line) { said.push_back(line); });
  const std::vector<float> values{2, 3, 4, 5};
  float want = 0;
  for (int i = 0; i < 5; ++i) {
    segment(graphs, values, i);
    for (const float value : values) want = want * value + 1;
    EXPECT_EQ(read(), want) << i;
    EXPECT_EQ(graphs.counts().direct, 1u);
    EXPECT_EQ(graphs.counts().captured, i == 0 ? 0u : 1u);
    EXPECT_EQ(graphs.counts().launched, static_cast<std::uint64_t>(i));
  }
  EXPECT_EQ(graphs.counts().direct_pieces, 4u);
  EXPECT_EQ(graphs.counts().launched_pieces, 16u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("1 CUDA graphs of 4 launches"));
}

TEST_F(GraphsTest, AnythingElseIsAnotherSegment) {
  Graphs graphs(handle(compute()));
  const std::vector<float> values{2, 3, 4, 5};
  for (int i = 0; i < 3; ++i) segment(graphs, values);
  const std::uint64_t launched = graphs.counts().launched;
  float want = read();
  const auto expect = [&](const std::vector<float>& other) {
    segment(graphs, other);
    for (const float value : other) want = want * value + 1;
    EXPECT_EQ(read(), want);
    EXPECT_EQ(graphs.counts().launched, launched);
  };
  expect({2, 3, 4, 6});
  expect({2, 3, 5, 4});
  expect({2, 3, 4, 5, 1});
  expect({2, 3, 4});
  expect({2, 3, 4});  // too short for a graph
  expect({2, 3, 4});
}

/// What a hash says is checked: with one that tells nothing apart every result is still right.
TEST_F(GraphsTest, CollisionsDoNoHarm) {
  Graphs::Limits limits;
  limits.hash = [](const std::byte*, std::size_t) -> std::uint64_t { return 42; };
  Graphs graphs(handle(compute()), {}, limits);
  float want = 0;
  for (int round = 0; round < 3; ++round) {
    for (const float last : {5.0f, 0.5f, 0.25f}) {
      const std::vector<float> values{2, 3, 1, last};
      segment(graphs, values);
      for (const float value : values) want = want * value + 1;
      EXPECT_EQ(read(), want) << round << " " << last;
    }
  }
  EXPECT_EQ(graphs.size(), 3u);
}

TEST_F(GraphsTest, ALongSegmentIsCut) {
  Graphs::Limits limits;
  limits.bytes = 8 * (16 + 32);
  Graphs graphs(handle(compute()), {}, limits);
  const std::vector<float> values(20, 1.0f);
  for (int i = 0; i < 3; ++i) segment(graphs, values);
  EXPECT_EQ(read(), 60.0f);
  // 8 + 8 + 4: the second eight are the first ones again.
  EXPECT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs.counts().direct_pieces, 12u);
}

TEST_F(GraphsTest, UnusedGraphsMakeRoomAndUsedOnesDoNot) {
  Graphs::Limits number, size;
  number.most = 2;
  size.most_pieces = 11;
  for (Graphs::Limits limits : {number, size}) {  // room for two of four pieces each
    limits.idle = 10;
    Graphs graphs(handle(compute()), {}, limits);
    const auto use = [&](float which, int times) {
      for (int i = 0; i < times; ++i) segment(graphs, {which, 1, 1, 1});
    };
    use(0.5f, 2);
    use(0.25f, 2);
    use(0.125f, 3);
    EXPECT_EQ(graphs.counts().captured, 2u) << "two graphs in use went for a third";
    use(0.25f, 10);
    use(0.125f, 1);  // the first has not been used for long
    EXPECT_EQ(graphs.counts().captured, 3u);
    EXPECT_EQ(graphs.counts().dropped, 1u);
    EXPECT_EQ(graphs.size(), 2u);
  }
}

TEST_F(GraphsTest, AFailingLaunchIsNamedAndSpoilsNothingElse) {
  Graphs graphs(handle(compute()));
  const auto broken = [&] {
    for (const char kind : {1, 1, 1, static_cast<int>('e')}) graphs.keep(step(1, kind));
    graphs.send();
  };
  EXPECT_THAT(error_of(broken), HasSubstr("step: not to be started"));
  EXPECT_EQ(read(), 3.0f);
  EXPECT_THAT(error_of(broken), HasSubstr("step: not to be started")) << "in a capture";
  EXPECT_EQ(read(), 3.0f) << "a capture that failed ran";
  for (int i = 0; i < 3; ++i) segment(graphs, {1, 1, 1, 1});
  EXPECT_EQ(read(), 15.0f);
  for (const char kind : {1, static_cast<int>('e')}) graphs.keep(step(1, kind));
  graphs.send_quietly();
  EXPECT_THAT(error_of([&] { graphs.keep(step(1)); }), HasSubstr("step: not to be started"));
  graphs.keep(step(1));
}

TEST_F(GraphsTest, WhatACaptureForbidsIsAnError) {
  Graphs graphs(handle(compute()));
  const auto run = [&] {
    for (int i = 0; i < 3; ++i) graphs.keep(step(1));
    graphs.keep([](cudaStream_t stream) { cudaStreamSynchronize(stream); });
    graphs.send();
  };
  run();
  EXPECT_THAT(error_of(run), HasSubstr("capture of a CUDA graph (backend.graphs = false does without)"));
}

/// What a device with graphs does at each point where its work is seen.
class GraphDeviceTest : public GraphsTest {
 protected:
  GraphDeviceTest() { device_.use_graphs({}); }
  void keep(int pieces) {
    for (int i = 0; i < pieces; ++i) handle(compute()).run(step(1));
  }
  std::uint64_t segments() const { return device_.graphs()->counts().direct + device_.graphs()->counts().launched; }
  /// Whether the call sends what is kept.
  bool cuts(const std::function<void()>& call) {
    device_.wait(compute());
    const std::uint64_t before = segments();
    keep(4);
    EXPECT_EQ(segments(), before);
    call();
    return segments() > before;
  }
};

TEST_F(GraphDeviceTest, WorkIsKeptUntilItIsSeen) {
  Stream& copies = device_.lane(Lane::copy);
  DeviceMemory other = device_.reserve(kCount * sizeof(float), "test");
  DeviceMemory pinned = device_.reserve_near_host(kCount * sizeof(float), "test");
  std::vector<float> pageable(kCount);
  const View there = View::vector(other.data(), kCount, DType::f32);
  EXPECT_FALSE(cuts([&] { device_.fill_zero(there, compute()); }));
  EXPECT_FALSE(cuts([&] { device_.copy(vector(), there, compute()); }));
  EXPECT_FALSE(cuts([&] { device_.fill_zero(there, copies); })) << "another lane";
  EXPECT_TRUE(cuts([&] { device_.order(compute(), copies); }));
  EXPECT_TRUE(cuts([&] { device_.order(copies, compute()); }));
  EXPECT_TRUE(cuts([&] { device_.wait(compute()); }));
  EXPECT_TRUE(cuts([&] { device_.wait(copies); }));
  EXPECT_TRUE(cuts([&] { device_.copy(there, View::vector(pageable.data(), kCount, DType::f32), compute()); }));
  EXPECT_TRUE(cuts([&] { device_.copy(View::vector(pageable.data(), kCount, DType::f32), there, compute()); }));
  EXPECT_TRUE(cuts([&] { device_.copy(there, View::vector(pinned.data(), kCount, DType::f32), compute()); }));
  EXPECT_TRUE(cuts([&] { other = {}; }));
  EXPECT_TRUE(cuts([&] { other = device_.reserve(8, "test"); }));
  EXPECT_TRUE(cuts([&] {
    const cudaStream_t stream = handle(compute());
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, stream);
    cudaEventDestroy(event);
  }));
}

TEST_F(GraphDeviceTest, ZerosAndCopiesArePartOfGraphs) {
  DeviceMemory other = device_.reserve(kCount * sizeof(float), "test");
  const View there = View::vector(other.data(), kCount, DType::f32);
  for (int i = 0; i < 4; ++i) {
    device_.fill_zero(vector(), compute());
    keep(3);
    device_.copy(vector(), there, compute());
    handle(compute()).run(Step{1, there.as<float>(), 2});
    device_.copy(there, vector(), compute());
    EXPECT_EQ(read(), 7.0f);
  }
  EXPECT_EQ(device_.graphs()->counts().launched, 3u);
  EXPECT_EQ(device_.graphs()->counts().launched_pieces, 21u);
}

TEST_F(GraphDeviceTest, AnErrorOfWorkThatWasKeptComesWithTheNextCall) {
  handle(compute()).run(step(1, 'e'));
  memory_ = {};
  EXPECT_THAT(error_of([&] { device_.wait(compute()); }), HasSubstr("step: not to be started"));
  device_.wait(compute());
}

TEST_F(GraphDeviceTest, WithoutAnybodyWhoLooksItStillGoesOut) {
  keep(3);
  device_.stop_graphs();
  EXPECT_EQ(read(), 3.0f);
}

TEST(GraphBackend, WaitingAfterEachLaunchExcludesIt) {
  Settings settings;
  settings.graphs = settings.synchronous = true;
  EXPECT_THAT(error_of([&] { FusedCudaBackend backend(settings); }),
              HasSubstr("backend.graphs and backend.synchronous are both true"));
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
