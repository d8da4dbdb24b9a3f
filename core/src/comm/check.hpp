#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "espalier/communicator.hpp"

namespace espalier::comm {

/// Elements of one piece of an operation, after a check of its views against the table of Operation.
/// @throws CommError naming group, rank and verb.
std::int64_t check(const Operation& operation, std::string_view group, int rank, int size);

/// "group data, rank 1 of 4: all_reduce: " + what.
[[noreturn]] void fail(std::string_view group, int rank, int size, Verb verb, std::string_view what);

/// Moves elements unless source and target are the same place.
void copy(const void* from, void* to, std::int64_t elements, DType dtype);

/// Prints "rank N: why" and waits until the launcher has read it: it drops what comes with an abort. Prints once a
/// process.
void print_last_words(int rank, int size, std::string_view why) noexcept;

}  // namespace espalier::comm
