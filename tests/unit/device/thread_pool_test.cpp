#include "espalier/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "espalier/error.hpp"

namespace espalier {
namespace {

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, RunEachItemOnce) {
  const auto pool = make_thread_pool(GetParam());
  EXPECT_EQ(pool->size(), GetParam());
  for (std::int64_t items : {0, 1, 2, 3, 64, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
    pool->run(items, [&](std::int64_t i) { seen.at(static_cast<std::size_t>(i)) += 1; });
    for (auto& count : seen) EXPECT_EQ(count, 1);
  }
}

// Many short jobs: a worker that comes late to one must not take an item of the next with the old body.
TEST_P(Threads, KeepJobsApart) {
  const auto pool = make_thread_pool(GetParam());
  for (int job = 0; job < 20000; ++job) {
    std::atomic<std::int64_t> sum{0};
    const std::int64_t items = 1 + job % 5;
    pool->run(items, [&](std::int64_t i) { sum += job * 10 + i; });
    ASSERT_EQ(sum, items * job * 10 + items * (items - 1) / 2) << "job " << job;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Threads, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, WorksOnSeveralThreadsAndWakesAfterSleep) {
  const auto pool = make_thread_pool(2);
  for (int round = 0; round < 2; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the worker has gone to sleep
    std::atomic<int> inside{0};
    // Each item waits for the other: only two threads can finish this.
    pool->run(2, [&](std::int64_t) {
      inside += 1;
      while (inside < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside, 2);
  }
}

std::atomic<int> looks{0}, looks_of_others{0};
std::thread::id caller;

TEST(ThreadPool, TheCallerLooksAfterMessagesBetweenItems) {
  caller = std::this_thread::get_id();
  set_between_items([] { (std::this_thread::get_id() == caller ? looks : looks_of_others) += 1; });
  for (const int threads : {1, 3}) {
    const auto pool = make_thread_pool(threads);
    looks = 0;
    pool->run(30, [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    EXPECT_GE(looks, 2);
    looks = 0;
    const auto begin = std::chrono::steady_clock::now();
    pool->run(20000, [](std::int64_t) {});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(looks, 1 + static_cast<int>(took.count() / 0.0002)) << "not after every small item";
  }
  set_between_items(nullptr);
  looks = 0;
  make_thread_pool(1)->run(3, [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  EXPECT_EQ(looks, 0);
  EXPECT_EQ(looks_of_others, 0);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(make_thread_pool(0), DeviceError); }

}  // namespace
}  // namespace espalier
