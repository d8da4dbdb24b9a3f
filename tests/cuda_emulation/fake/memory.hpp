#pragma once

#include <cstddef>
#include <string>

/// Memory of the fake device. Every reservation has pages of its own, ends at a guard page, is filled with 0xFF, and
/// cannot be touched by the host: its pages are open only while queued work runs. Addresses are never given out twice,
/// so that use after free is seen, too. Whoever breaks this gets a message with the address and the reservation, and
/// the process ends.
namespace fake {

/// @return null when the device's memory (ESPALIER_FAKE_CUDA_MEMORY bytes) is used up.
void* allocate_device(std::size_t bytes);
/// @return false when it is no live reservation's first byte.
bool free_device(void* data);
void* allocate_pinned(std::size_t bytes);
bool free_pinned(void* data);

std::size_t device_bytes_total();
std::size_t device_bytes_free();

enum class Place { pageable, pinned, device };
Place place_of(const void* data);

/// Ends the process unless the bytes lie in one live reservation (pageable memory is not checked).
void check_range(const void* data, std::size_t bytes, const char* what);

/// "byte 12 of reservation 3 (1000 bytes)": for messages; "" for an address that is not the device's.
std::string describe(const void* data);

/// Prints "fake cuda: " and the text and ends the process with SIGABRT: what the fake found would be undefined on a
/// device.
[[noreturn]] void violation(const std::string& text);

/// Opens the device's memory to this thread, for the time work runs.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

}  // namespace fake
