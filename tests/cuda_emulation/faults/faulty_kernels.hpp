#pragma once

namespace espalier::cuda_emulation_tests {

/// Kernels with one mistake each. Every launch has one block of 256 threads and writes 256 floats.
enum class Fault {
  none,
  removed_barrier,
  divergent_barrier,
  barrier_after_return,
  short_mask,
  lane_outside_mask,
  two_collectives,
  overrun,
  underrun,
  unwritten_slot,
  read_and_write,
  warp_race,
  unwritten_dynamic,
  dynamic_overrun,
  misaligned_vector,
  too_much_static,
};

void launch_faulty(Fault fault, float* out);
/// Whether a launch of these sizes is refused is the test's question; the kernel does nothing.
void launch_empty(unsigned grid_y, unsigned threads, unsigned threads_z, unsigned long dynamic_shared_bytes);
/// Line of faulty_kernels.cu that the report must name.
int line_of(Fault fault);
/// Every collective there is, with the value each thread should get written down beside the one it got; @returns
/// mismatches.
int count_collective_mismatches();

}  // namespace espalier::cuda_emulation_tests
