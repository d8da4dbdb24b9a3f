#pragma once

#include <cstdint>
#include <string_view>

/// What tests in the same process do to the fake; programs of others are steered by the variables of README.md.
namespace fake {

/// Starts the choices anew (ESPALIER_FAKE_CUDA_SEED).
void set_seed(std::uint64_t seed);
/// The n-th wait for an event from now on is left out; 0: none (ESPALIER_FAKE_CUDA_IGNORE_WAIT).
void ignore_wait(std::uint64_t n);
/// Waits for events queued so far.
std::uint64_t waits();
/// The next work of this name faults; "": none (ESPALIER_FAKE_CUDA_FAULT).
void fault_at(std::string_view name);
/// Calls, and groups of calls, that NCCL was given.
std::uint64_t nccl_launches();
/// cuBLASLt has no epilogue besides the bias, as on a GPU or for a shape without one (ESPALIER_FAKE_CUDA_EPILOGUES=0).
void refuse_epilogues(bool refuse);
/// As a new process has it: no sticky error.
void forget_error();

}  // namespace fake
