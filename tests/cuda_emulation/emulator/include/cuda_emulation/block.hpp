#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda_emulation/emulator.hpp"

/// The block that is running, as the intrinsics and the shared memory of device_code.hpp see it.
namespace cuda_emulation {

inline constexpr unsigned kWarp = 32;

/// Kinds of warp collectives: lanes that meet must have called the same one.
enum class Collective : std::uint8_t { sync, shuffle, shuffle_xor, shuffle_up, shuffle_down, ballot };

/// Kinds of block barriers, by what they make of the threads' predicates.
enum class Vote : std::uint8_t { none, count, all, any };

/// Who touched an element of shared memory since the last barrier.
struct Cell {
  std::uint64_t write_epoch = 0, read_epoch = 0;  ///< barrier epochs
  std::uint32_t writer = 0, write_clock = 0;
  Location write_place, read_place;
  std::uint32_t reader_warp = 0, last_reader = 0;
  std::uint32_t readers = 0;  ///< lanes of reader_warp
  bool many_warps = false;
  std::array<std::uint32_t, kWarp> read_clock{};
};

/// One shared array. Storage lives as long as the program; contents are poison at the start of every block.
struct SharedArray {
  std::uint64_t generation = 0;  ///< block that last used it
  std::size_t element = 0;       ///< bytes
  std::size_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> written;  ///< generation in which each element was last written
  std::vector<Cell> cells;
};

struct ThreadState {
  uint3 index{};
  unsigned linear = 0, lane = 0, warp = 0;
};

/// Thread that is running, and where it stands.
extern ThreadState* current;
extern uint3 block_index;
extern dim3 block_size, grid_size;

int barrier(Vote vote, int predicate, Location at);
/// Deposits a value and waits for all lanes of the mask. @returns what each lane deposited.
const std::uint64_t* meet(unsigned mask, std::uint64_t value, Collective kind, Location at);
/// Makes the array ready for the running block. @param dynamic  whether it is the dynamic part, whose size the launch
/// gave.
void attach(SharedArray& array, std::size_t element, std::size_t count, Location at);
SharedArray& dynamic_array(std::size_t element, Location at);
void touch(SharedArray& array, std::size_t index, bool write, Location at);
/// Ends the launch with an Error that names kernel, block, thread and place.
[[noreturn]] void fail(const std::string& what, Location at);

}  // namespace cuda_emulation
