#include "text/tokenizers/bpe.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

// Up to here a scan over all pairs for each merge beats the queue; measured on the corpus, the optimum is flat.
constexpr std::size_t kShort = 64;

}  // namespace

MergeTable::MergeTable(std::size_t merges) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(2 * merges, 16));
  slots_.resize(capacity);
  mask_ = capacity - 1;
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(capacity));
}

void MergeTable::insert(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = pack(left, right);
  std::size_t at = place(key);
  while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask_;
  slots_[at] = {key, merge};
}

void BytePairEncoder::encode(std::string_view piece, MergeScratch& scratch, std::vector<std::int32_t>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(bytes_[static_cast<unsigned char>(piece[0])]);
  } else if (piece.size() <= kShort) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, scratch, ids);
  }
}

void BytePairEncoder::encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::size_t count = piece.size();
  if (count == 0) return;
  std::array<std::uint32_t, kShort> symbols;
  std::array<MergeTable::Merge, kShort> merges;  // of symbol k and the one after it
  symbols[0] = byte_at(piece, 0);
  for (std::size_t k = 1; k < count; ++k) {
    symbols[k] = byte_at(piece, k);
    merges[k - 1] = merges_.find(symbols[k - 1], symbols[k]);
  }
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t k = 1; k + 1 < count; ++k) {
      if (merges[k].rank < merges[best].rank) best = k;
    }
    if (merges[best].rank == MergeTable::kNone) break;
    symbols[best] = merges[best].id;
    --count;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count + 1, symbols.begin() + best + 1);
    if (best + 1 < count) std::copy(merges.begin() + best + 1, merges.begin() + count, merges.begin() + best);
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

void BytePairEncoder::encode_long(std::string_view piece, MergeScratch& scratch, std::vector<std::int32_t>& ids) const {
  constexpr std::uint32_t kNone = MergeTable::kNone;
  if (piece.size() >= kNone) {
    throw IoError("a piece of text without a place to split has " + std::to_string(piece.size()) +
                  " bytes; 4 GiB is the limit, cut the document");
  }
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;  // rank in the upper half, place in the lower: the smallest goes first
  const auto count = static_cast<std::uint32_t>(piece.size());
  symbols.resize(count);
  queue.clear();
  for (std::uint32_t k = 0; k < count; ++k) symbols[k] = {byte_at(piece, k), k - 1, k + 1, kNone};
  symbols[count - 1].next = kNone;  // symbols[0].previous is it by wrapping
  for (std::uint32_t k = 0; k + 1 < count; ++k) {
    symbols[k].rank = merges_.find(symbols[k].id, symbols[k + 1].id).rank;
    if (symbols[k].rank != kNone) queue.push_back((std::uint64_t{symbols[k].rank} << 32) | k);
  }
  std::ranges::make_heap(queue, std::greater<>());
  const auto renew = [&](std::uint32_t at) {
    auto& symbol = symbols[at];
    symbol.rank = symbol.next == kNone ? kNone : merges_.find(symbol.id, symbols[symbol.next].id).rank;
    if (symbol.rank == kNone) return;
    queue.push_back((std::uint64_t{symbol.rank} << 32) | at);
    std::ranges::push_heap(queue, std::greater<>());
  };
  while (!queue.empty()) {
    std::ranges::pop_heap(queue, std::greater<>());
    const std::uint64_t entry = queue.back();
    queue.pop_back();
    const auto at = static_cast<std::uint32_t>(entry);
    auto& symbol = symbols[at];
    if (symbol.rank != static_cast<std::uint32_t>(entry >> 32)) continue;  // a neighbour has changed since
    auto& gone = symbols[symbol.next];
    symbol.id = merges_.find(symbol.id, gone.id).id;
    gone.rank = kNone;
    symbol.next = gone.next;
    if (symbol.next != kNone) symbols[symbol.next].previous = at;
    renew(at);
    if (symbol.previous != kNone) renew(symbol.previous);
  }
  for (std::uint32_t k = 0; k != kNone; k = symbols[k].next) ids.push_back(static_cast<std::int32_t>(symbols[k].id));
  constexpr std::size_t kKeep = 1 << 20;  // one huge piece must not hold its memory for ever
  if (symbols.size() > kKeep) symbols = {};
  if (queue.capacity() > kKeep) queue = {};
}

}  // namespace espalier::app
