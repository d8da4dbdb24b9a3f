#include "comm/check.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace espalier::comm {
namespace {

bool holds(const View& view, std::int64_t elements) {
  return view.contiguous() && view.elements() == elements && (view.data != nullptr || elements == 0);
}

}  // namespace

void fail(std::string_view group, int rank, int size, Verb verb, std::string_view what) {
  throw CommError("group " + std::string(group) + ", rank " + std::to_string(rank) + " of " + std::to_string(size) +
                  ": " + std::string(name_of(verb)) + ": " + std::string(what));
}

std::int64_t check(const Operation& op, std::string_view group, int rank, int size) {
  const auto expect = [&](bool good, const char* what) {
    if (!good) fail(group, rank, size, op.verb, what);
  };
  const auto peer_in_group = [&] { expect(op.peer >= 0 && op.peer < size, "peer is not a rank of the group"); };
  const std::int64_t n = op.verb == Verb::reduce_scatter || op.verb == Verb::receive ? op.target.elements()
                         : op.verb == Verb::all_to_all                               ? op.source.elements() / size
                                                                                     : op.source.elements();
  constexpr const char* kSource =
      "source has another number of elements than the group needs, or gaps between its rows";
  constexpr const char* kTarget =
      "target has another number of elements than the group needs, or gaps between its rows";
  switch (op.verb) {
    case Verb::barrier:
      return 0;
    case Verb::send:
    case Verb::receive:
      peer_in_group();
      expect(op.peer != rank, "a rank cannot exchange messages with itself");
      expect(op.tag >= 0 && op.tag <= 32767, "tag outside 0 … 32767");
      if (op.verb == Verb::send) expect(holds(op.source, n), kSource);
      if (op.verb == Verb::receive) expect(holds(op.target, n), kTarget);
      return n;
    case Verb::broadcast:
      peer_in_group();
      expect(op.source.data == op.target.data, "source and target must be the same place");
      break;
    case Verb::all_reduce:
    case Verb::reduce_scatter:
    case Verb::all_gather:
    case Verb::all_to_all:
      break;
  }
  const bool many_sources = op.verb == Verb::reduce_scatter || op.verb == Verb::all_to_all;
  const bool many_targets = op.verb == Verb::all_gather || op.verb == Verb::all_to_all;
  expect(holds(op.source, many_sources ? n * size : n), kSource);
  expect(holds(op.target, many_targets ? n * size : n), kTarget);
  expect(op.source.dtype == op.target.dtype, "source and target differ in dtype");
  return n;
}

void copy(const void* from, void* to, std::int64_t elements, DType dtype) {
  if (from != to && elements != 0) std::memmove(to, from, static_cast<std::size_t>(elements) * size_of(dtype));
}

void print_last_words(int rank, int size, std::string_view why) noexcept {
  static std::atomic<bool> printed{false};
  if (printed.exchange(true)) return;
  std::fflush(nullptr);
  if (size > 1) {
    std::fprintf(stderr, "rank %d: %.*s\n", rank, static_cast<int>(why.size()), why.data());
  } else {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
  }
  std::fflush(stderr);
  if (size > 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace espalier::comm
