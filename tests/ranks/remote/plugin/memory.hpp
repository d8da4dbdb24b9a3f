// Memory that the host cannot touch: its pages have no access rights except while queued work runs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/device.hpp"

namespace espalier::remote {

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Zeroed bytes. @throws DeviceError when the region is full.
  void* reserve(std::size_t bytes, std::string_view purpose);
  /// The bytes are poisoned: who still uses them sees it.
  void release(void* data) noexcept;
  /// Whether an address lies in this memory, reserved or not.
  bool holds(const void* data) const;
  const std::vector<MemoryUse>& use() const { return use_; }

  /// Gives access for a lifetime; nests.
  class Access {
   public:
    explicit Access(Memory& memory) : memory_(memory) { memory_.enter(); }
    ~Access() { memory_.leave(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    Memory& memory_;
  };

 private:
  struct Block {
    std::size_t bytes = 0;
    std::size_t purpose = 0;  ///< index into use_
  };
  void enter();
  void leave() noexcept;
  std::size_t place(std::size_t bytes) const;

  std::byte* base_ = nullptr;
  std::size_t end_ = 0;                  // the highest byte ever reserved: what access rights are changed of
  std::map<std::size_t, Block> blocks_;  // by offset
  std::vector<MemoryUse> use_;
  int depth_ = 0;
};

}  // namespace espalier::remote
