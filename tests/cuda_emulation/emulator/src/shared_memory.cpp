// The engine's part about shared memory: poison, limits, and who may touch what when.
#include "engine.hpp"

namespace cuda_emulation {
namespace {

constexpr std::size_t kStaticSharedLimit = 48 << 10;
constexpr std::size_t kSharedLimit = 163 << 10;  // of one block on sm_80, the smaller of the devices built for

}  // namespace

void Engine::attach(SharedArray& array, std::size_t element, std::size_t count, Location at) {
  if (array.generation == generation_) return;
  array.generation = generation_;
  static_bytes_ += element * count;
  if (static_bytes_ > kStaticSharedLimit) {
    fail("static shared memory of " + std::to_string(static_bytes_) + " bytes; a block may have " +
             std::to_string(kStaticSharedLimit),
         at);
  }
  if (static_bytes_ + dynamic_bytes_ > kSharedLimit) {
    fail("shared memory of " + std::to_string(static_bytes_ + dynamic_bytes_) + " bytes; a block may have " +
             std::to_string(kSharedLimit),
         at);
  }
  array.element = element;
  array.count = count;
  array.bytes.assign(element * count, std::byte{0xff});  // NaN in every floating-point type
  array.written.resize(count);
  if (options().races) array.cells.resize(count);
}

SharedArray& Engine::dynamic_array(std::size_t element, Location at) {
  if (dynamic_.generation != generation_) {
    const std::size_t own = static_bytes_;
    attach(dynamic_, element, dynamic_bytes_ / element, at);
    static_bytes_ = own;
  } else if (dynamic_.element != element) {
    fail("dynamic shared memory with elements of " + std::to_string(element) + " bytes, and of " +
             std::to_string(dynamic_.element) + " elsewhere in the kernel: the emulator knows one type of it",
         at);
  }
  return dynamic_;
}

bool Engine::ordered(const Thread& thread, std::uint32_t other, std::uint32_t clock) const {
  return other == thread.linear || (other / kWarp == thread.warp && thread.clock[other % kWarp] > clock);
}

void Engine::race(const char* what, std::uint32_t other, Location place_of_other, const char* access, Location at) {
  fail(std::string("a race in shared memory: ") + what + " here, " + access + " by thread " + std::to_string(other) +
           " at " + place(place_of_other) + ", no barrier between them",
       at);
}

void Engine::touch(SharedArray& array, std::size_t index, bool write, Location at) {
  if (write) {
    array.written[index] = generation_;
  } else if (array.written[index] != generation_) {
    fail("shared memory read that nobody has written in this block, or not yet (element " + std::to_string(index) + ")",
         at);
  }
  if (!options().races) return;
  if (array.cells.size() < array.count) array.cells.resize(array.count);
  const Thread& thread = *static_cast<const Thread*>(current);
  Cell& cell = array.cells[index];
  if (cell.write_epoch == epoch_ && !ordered(thread, cell.writer, cell.write_clock)) {
    race(write ? "a write" : "a read", cell.writer, cell.write_place, "a write", at);
  }
  if (write) {
    if (cell.read_epoch == epoch_) {
      if (cell.many_warps || cell.reader_warp != thread.warp)
        race("a write", cell.last_reader, cell.read_place, "a read", at);
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        const std::uint32_t reader = cell.reader_warp * kWarp + lane;
        if ((cell.readers >> lane & 1u) != 0 && !ordered(thread, reader, cell.read_clock[lane])) {
          race("a write", reader, cell.read_place, "a read", at);
        }
      }
    }
    cell.write_epoch = epoch_;
    cell.writer = thread.linear;
    cell.write_clock = thread.clock[thread.lane];
    cell.write_place = at;
    return;
  }
  if (cell.read_epoch != epoch_) {
    cell.read_epoch = epoch_;
    cell.reader_warp = thread.warp;
    cell.many_warps = false;
    cell.readers = 0;
  }
  if (cell.reader_warp != thread.warp) {
    cell.many_warps = true;
  } else {
    cell.readers |= 1u << thread.lane;
    cell.read_clock[thread.lane] = thread.clock[thread.lane];
  }
  cell.last_reader = thread.linear;
  cell.read_place = at;
}

}  // namespace cuda_emulation
