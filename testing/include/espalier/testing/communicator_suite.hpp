#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "espalier/communicator.hpp"

/// What every Communicator on host memory must do. In one source of a program that runs on the ranks of interest:
///
///   INSTANTIATE_TEST_SUITE_P(Mine, CommunicatorSuite, testing::Values(CommunicatorMaker{"mine", [] { return
///   make_mine(); }})); INSTANTIATE_TEST_SUITE_P(Mine, CommunicatorTypes, testing::Combine(testing::Values(…same…),
///   testing::Values(DType::f32, …)));
///
/// Each test makes its own communicator, so making one must be collective and repeatable.
namespace espalier::testing {

struct CommunicatorMaker {
  std::string name;
  std::function<std::unique_ptr<Communicator>()> make;
  /// Whether messages may cross and are found by their tags; else send and receive meet in the order they are started.
  bool tagged = true;
  friend std::ostream& operator<<(std::ostream& out, const CommunicatorMaker& maker) { return out << maker.name; }
};

class HostStream final : public Stream {};

/// A contiguous vector of any dtype with access as double.
class Numbers {
 public:
  Numbers(std::int64_t n, DType dtype) : n_(n), dtype_(dtype), bytes_(static_cast<std::size_t>(n) * size_of(dtype)) {}
  View view() { return View::vector(bytes_.data(), n_, dtype_); }
  View part(std::int64_t begin, std::int64_t end) { return view().flat_range(begin, end); }
  double get(std::int64_t i) const {
    double value = 0;
    visit(i, [&](auto& x) {
      using T = std::remove_reference_t<decltype(x)>;
      if constexpr (std::is_arithmetic_v<T>)
        value = static_cast<double>(x);
      else
        value = to_float(x);
    });
    return value;
  }
  void set(std::int64_t i, double value) {
    visit(i, [&](auto& x) {
      using T = std::remove_reference_t<decltype(x)>;
      if constexpr (std::is_arithmetic_v<T>)
        x = static_cast<T>(value);
      else
        x = from_float<T>(static_cast<float>(value));
    });
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class Body>
  void visit(std::int64_t i, Body body) const {
    std::byte* place = const_cast<std::byte*>(bytes_.data()) + static_cast<std::size_t>(i) * size_of(dtype_);
    switch (dtype_) {
      case DType::f32:
        return body(*reinterpret_cast<float*>(place));
      case DType::bf16:
        return body(*reinterpret_cast<BFloat16*>(place));
      case DType::f16:
        return body(*reinterpret_cast<Float16*>(place));
      case DType::f64:
        return body(*reinterpret_cast<double*>(place));
      case DType::i32:
        return body(*reinterpret_cast<std::int32_t*>(place));
      case DType::i64:
        return body(*reinterpret_cast<std::int64_t*>(place));
      case DType::u8:
        return body(*reinterpret_cast<std::uint8_t*>(place));
    }
  }

  std::int64_t n_;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

/// Element i of rank r: for floats spread over powers of two, so that another order of a sum shows in its bits.
inline double suite_number(DType dtype, int rank, std::int64_t i) {
  const std::int64_t mixed = (i * 2654435761 + rank * 40503 + 12345) % 1000;
  if (dtype == DType::u8) return static_cast<double>(mixed % 50);
  if (dtype == DType::i32 || dtype == DType::i64) return static_cast<double>(mixed - 500);
  return std::ldexp(static_cast<double>(mixed - 500) / 512, -static_cast<int>((i + rank * 7) % 11));
}

/// The sum in rank order as the contract says: FP32 (FP64 for f64), rounded once.
inline double sum_in_rank_order(DType dtype, int size, const std::function<double(int)>& piece) {
  if (dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8) {
    double sum = piece(0);
    for (int r = 1; r < size; ++r) sum += piece(r);
    return sum;
  }
  auto sum = static_cast<float>(piece(0));
  for (int r = 1; r < size; ++r) sum += static_cast<float>(piece(r));
  Numbers rounded(1, dtype);
  rounded.set(0, sum);
  return rounded.get(0);
}

class CommunicatorSuite : public ::testing::TestWithParam<CommunicatorMaker> {
 protected:
  void SetUp() override { group_ = GetParam().make(); }
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  std::unique_ptr<Communicator> group_;
  HostStream stream_;
};

class CommunicatorTypes : public ::testing::TestWithParam<std::tuple<CommunicatorMaker, DType>> {
 protected:
  void SetUp() override { group_ = std::get<0>(GetParam()).make(); }
  DType dtype() const { return std::get<1>(GetParam()); }
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  Numbers mine(std::int64_t n) const {
    Numbers numbers(n, dtype());
    for (std::int64_t i = 0; i < n; ++i) numbers.set(i, suite_number(dtype(), rank(), i));
    return numbers;
  }
  double element(int r, std::int64_t i) const {
    Numbers one(1, dtype());
    one.set(0, suite_number(dtype(), r, i));
    return one.get(0);
  }
  double summed(std::int64_t i) const {
    return sum_in_rank_order(dtype(), size(), [&](int r) { return element(r, i); });
  }

  std::unique_ptr<Communicator> group_;
  HostStream stream_;
};

/// Sizes around one, around the group, and beyond any limit for small messages.
inline constexpr std::array<std::int64_t, 7> kSuiteSizes = {0, 1, 2, 5, 1000, 10007, 70001};

TEST_P(CommunicatorTypes, AllReduceAddsInRankOrder) {
  for (std::int64_t n : kSuiteSizes) {
    Numbers source = mine(n), target(n, dtype());
    group_->run({Verb::all_reduce, source.view(), target.view(), Reduce::sum_rank_order, 0, 0}, stream_);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(target.get(i), summed(i)) << "element " << i << " of " << n;
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(source.get(i), element(rank(), i));
    group_->finish(group_->start_all_reduce(source.view(), Reduce::sum_rank_order, stream_), stream_);
    ASSERT_EQ(source.bytes(), target.bytes()) << "in place, " << n << " elements";
  }
}

TEST_P(CommunicatorTypes, ReduceScatterGivesTheBitsOfAllReduce) {
  for (std::int64_t n : kSuiteSizes) {
    Numbers source = mine(n * size()), target(n, dtype());
    const Operation operation{Verb::reduce_scatter, source.view(), target.view(), Reduce::sum_rank_order, 0, 0};
    group_->run(operation, stream_);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(target.get(i), summed(rank() * n + i)) << i << " of " << n;
    const View own = source.part(rank() * n, (rank() + 1) * n);
    group_->run({Verb::reduce_scatter, source.view(), own, Reduce::sum_rank_order, 0, 0}, stream_);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(source.get(rank() * n + i), target.get(i)) << "in place";
  }
}

TEST_P(CommunicatorTypes, Maximum) {
  for (std::int64_t n : kSuiteSizes) {
    Numbers buffer = mine(n);
    group_->finish(group_->start_all_reduce(buffer.view(), Reduce::max, stream_), stream_);
    for (std::int64_t i = 0; i < n; ++i) {
      double expected = element(0, i);
      for (int r = 1; r < size(); ++r) expected = std::max(expected, element(r, i));
      ASSERT_EQ(buffer.get(i), expected) << i << " of " << n;
    }
  }
}

TEST_P(CommunicatorTypes, AllGatherAndAllToAllAndBroadcast) {
  for (std::int64_t n : kSuiteSizes) {
    Numbers source = mine(n * size()), gathered(n * size(), dtype()), exchanged(n * size(), dtype());
    const View own = source.part(0, n);
    group_->run({Verb::all_gather, own, gathered.view(), Reduce::sum_rank_order, 0, 0}, stream_);
    group_->run({Verb::all_to_all, source.view(), exchanged.view(), Reduce::sum_rank_order, 0, 0}, stream_);
    for (int r = 0; r < size(); ++r) {
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(gathered.get(r * n + i), element(r, i));
        ASSERT_EQ(exchanged.get(r * n + i), element(r, rank() * n + i));
      }
    }
    // In place: the own piece already lies where it belongs.
    Numbers in_place(n * size(), dtype());
    for (std::int64_t i = 0; i < n; ++i) in_place.set(rank() * n + i, element(rank(), i));
    group_->finish(group_->start_all_gather(in_place.part(rank() * n, (rank() + 1) * n), in_place.view(), stream_),
                   stream_);
    ASSERT_EQ(in_place.bytes(), gathered.bytes());
    for (int root = 0; root < size(); ++root) {
      Numbers buffer = mine(n);
      group_->finish(group_->start_broadcast(buffer.view(), root, stream_), stream_);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(buffer.get(i), element(root, i));
    }
  }
}

/// NaN and infinity reach every rank: a step is skipped everywhere or nowhere.
TEST_P(CommunicatorSuite, NotANumberSurvivesSumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int bad = 0; bad < size(); ++bad) {
    for (Reduce how : {Reduce::sum_rank_order, Reduce::max}) {
      float value = rank() == bad ? nan : 1.0f;
      group_->finish(group_->start_all_reduce(View::vector(&value, 1, DType::f32), how, stream_), stream_);
      EXPECT_TRUE(std::isnan(value)) << "NaN on rank " << bad;
    }
  }
}

/// 256 + many small: summed in BF16 the small ones would vanish one by one (from three ranks on).
TEST_P(CommunicatorSuite, SixteenBitMessagesAreSummedWide) {
  Numbers value(1, DType::bf16);
  value.set(0, rank() == 0 ? 256.0 : 0.75);
  group_->finish(group_->start_all_reduce(value.view(), Reduce::sum_rank_order, stream_), stream_);
  Numbers expected(1, DType::bf16);
  expected.set(0, 256.0 + 0.75 * (size() - 1));
  EXPECT_EQ(value.get(0), expected.get(0));
}

TEST_P(CommunicatorSuite, MessagesKeepTheirOrderAndTags) {
  constexpr std::int64_t kLengths[] = {3, 20011, 1};
  const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
  if (size() == 1) {
    Numbers one(1, DType::f32);
    EXPECT_THROW(group_->start_send(one.view(), 0, 0, stream_), CommError);
    return;
  }
  for (int tag : {0, 32767}) {
    std::vector<Numbers> out, in;
    const auto start_receives = [&](std::vector<Request>& requests) {
      const std::array<std::size_t, 3> order =
          GetParam().tagged ? std::array<std::size_t, 3>{2, 0, 1} : std::array<std::size_t, 3>{0, 1, 2};
      for (const std::size_t m : order) {
        requests.push_back(group_->start_receive(in[m].view(), before, m == 2 ? 77 : tag, stream_));
      }
    };
    std::vector<Request> requests;
    for (std::int64_t n : kLengths) {
      out.emplace_back(n, DType::f32);
      in.emplace_back(n, DType::f32);
      for (std::int64_t i = 0; i < n; ++i) out.back().set(i, suite_number(DType::f32, rank(), i + n));
    }
    // Two messages with one tag in a row, then a third that is received first where tags tell. In order one rank
    // sends first, and each other one when it has received.
    if (!GetParam().tagged && rank() != 0) start_receives(requests);
    for (std::size_t m = 0; m < 3; ++m) {
      requests.push_back(group_->start_send(out[m].view(), next, m == 2 ? 77 : tag, stream_));
    }
    if (GetParam().tagged || rank() == 0) start_receives(requests);
    for (std::size_t k = requests.size(); k-- > 0;) group_->finish(requests[k], stream_);
    for (std::size_t m = 0; m < 3; ++m) {
      for (std::int64_t i = 0; i < kLengths[m]; ++i) {
        ASSERT_EQ(in[m].get(i), static_cast<float>(suite_number(DType::f32, before, i + kLengths[m]))) << m << " " << i;
      }
    }
  }
}

/// Many collectives in flight, finished in another order on each rank.
TEST_P(CommunicatorSuite, OpenOperationsMayBeFinishedInAnyOrder) {
  constexpr std::size_t kOpen = 24;
  std::vector<Numbers> buffers;
  std::vector<Request> requests;
  for (std::size_t k = 0; k < kOpen; ++k) {
    const std::int64_t n = k % 3 == 0 ? 30000 : 10;
    buffers.emplace_back(n, DType::f32);
    for (std::int64_t i = 0; i < n; ++i) buffers.back().set(i, static_cast<double>(k) + rank());
    requests.push_back(k % 4 == 1
                           ? group_->start_broadcast(buffers.back().view(), static_cast<int>(k) % size(), stream_)
                           : group_->start_all_reduce(buffers.back().view(), Reduce::sum_rank_order, stream_));
  }
  requests.push_back(group_->start({}, stream_));  // a barrier among them
  for (std::size_t k = 0; k < requests.size(); ++k) {
    const std::size_t which = (k * 7 + static_cast<std::size_t>(rank()) * 5) % requests.size();
    group_->finish(requests[which], stream_);
  }
  for (std::size_t k = 0; k < kOpen; ++k) {
    const double expected = k % 4 == 1 ? static_cast<double>(k) + static_cast<int>(k) % size()
                                       : static_cast<double>(k) * size() + size() * (size() - 1) / 2.0;
    for (std::int64_t i = 0; i < buffers[k].view().elements(); ++i) ASSERT_EQ(buffers[k].get(i), expected) << k;
  }
}

TEST_P(CommunicatorSuite, DoneTellsWithoutReleasing) {
  Numbers buffer(100, DType::f32);
  const Request request = group_->start_all_reduce(buffer.view(), Reduce::sum_rank_order, stream_);
  while (!group_->done(request)) {
  }
  EXPECT_TRUE(group_->done(request));
  group_->finish(request, stream_);
  EXPECT_TRUE(group_->done({}));
  group_->finish({}, stream_);
}

TEST_P(CommunicatorSuite, SplitsByColourAndOrdersByKey) {
  // Even and odd ranks, in descending order; rank 0 stays out of a third group.
  const auto part = group_->split(rank() % 2, -rank(), "part");
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->name(), "part");
  const int members = (size() + 1 - rank() % 2) / 2;
  ASSERT_EQ(part->size(), members);
  EXPECT_EQ(part->rank(), members - 1 - rank() / 2);
  float who = static_cast<float>(rank());
  std::vector<float> all(static_cast<std::size_t>(members));
  part->finish(
      part->start_all_gather(View::vector(&who, 1, DType::f32), View::vector(all.data(), members, DType::f32), stream_),
      stream_);
  for (int r = 0; r < members; ++r) {
    EXPECT_EQ(all[static_cast<std::size_t>(r)], static_cast<float>(2 * (members - 1 - r) + rank() % 2));
  }
  const auto rest = group_->split(rank() == 0 ? -1 : 0, 0, "rest");
  EXPECT_EQ(rest == nullptr, rank() == 0);
  // A group that goes before the one it came from, and after it.
  auto child = group_->split(0, 0, "child");
  group_.reset();
  float one = 1;
  child->finish(child->start_all_reduce(View::vector(&one, 1, DType::f32), Reduce::sum_rank_order, stream_), stream_);
  EXPECT_EQ(one, static_cast<float>(child->size()));
}

TEST_P(CommunicatorSuite, RefusesViewsThatDoNotFit) {
  Numbers a(6, DType::f32), b(6, DType::bf16);
  EXPECT_THROW(group_->start({Verb::all_reduce, a.view(), b.view(), Reduce::sum_rank_order, 0, 0}, stream_), CommError);
  EXPECT_THROW(group_->start_broadcast(a.view(), size(), stream_), CommError);
  EXPECT_THROW(group_->start_send(a.view(), rank(), 0, stream_), CommError);
  const View gaps{a.view().data, 2, 2, 3, DType::f32};
  try {
    group_->start_all_reduce(gaps, Reduce::sum_rank_order, stream_);
    FAIL() << "gaps between rows were accepted";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(group_->name()), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
  }
}

TEST_P(CommunicatorSuite, GathersStringsOfAnyLength) {
  const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(r * 3), static_cast<char>('a' + r)); };
  const std::vector<std::string> all = gather_strings(*group_, text_of(rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r));
}

TEST_P(CommunicatorSuite, AgreesOnTheLowestFailure) {
  EXPECT_NO_THROW(agree(*group_, 0, ""));
  const int first = size() / 2;
  try {
    agree(*group_, 10 + rank(), rank() >= first ? "problem of " + std::to_string(rank()) : "");
    FAIL() << "rank " << rank() << " went on";
  } catch (const Error& error) {
    const std::string text = "problem of " + std::to_string(first);
    EXPECT_EQ(error.what(), size() > 1 ? "rank " + std::to_string(first) + ": " + text : text);
    EXPECT_EQ(static_cast<int>(error.exit_code()), 10 + first);
  }
}

}  // namespace espalier::testing
