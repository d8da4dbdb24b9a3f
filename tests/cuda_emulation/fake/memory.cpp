#include "memory.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "queue.hpp"

namespace fake {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;               // of cudaMalloc
constexpr std::size_t kSpace = std::size_t{1} << 38;  // addresses, never given out twice
constexpr std::size_t kDefaultMemory = std::size_t{4} << 30;
constexpr unsigned char kPoison = 0xFF;  // NaN in every floating type, -1 in the others

struct Reservation {
  std::byte* pages = nullptr;
  std::size_t page_bytes = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int number = 0;
  bool live = true;
};

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

class Memory {
 public:
  static Memory& get() {
    static Memory* memory =
        new Memory;  // never destroyed: plugins are never unloaded, and order at exit is nobody's concern
    return *memory;
  }

  void* allocate(std::size_t bytes) {
    if (bytes == 0 || used_ + bytes > total_) return nullptr;
    Reservation one;
    one.page_bytes = round_up(round_up(bytes, kAlignment), kPage);
    one.pages = next_;
    // The end of the memory is the end of its last page, as near as the alignment lets it be.
    one.data = one.pages + one.page_bytes - round_up(bytes, kAlignment);
    one.bytes = bytes;
    one.number = ++count_;
    next_ += one.page_bytes + kPage;
    if (next_ > base_ + kSpace) violation("out of addresses");
    protect(one, PROT_READ | PROT_WRITE);
    std::memset(one.pages, kPoison, one.page_bytes);
    if (open_ == 0) protect(one, PROT_NONE);
    used_ += bytes;
    reservations_[one.data] = one;
    return one.data;
  }

  bool free(void* data) {
    const auto found = reservations_.find(static_cast<std::byte*>(data));
    if (found == reservations_.end() || !found->second.live) return false;
    Reservation& one = found->second;
    protect(one, PROT_READ);
    for (std::byte* at = one.pages; at < one.pages + one.page_bytes; ++at) {
      const bool inside = at >= one.data && at < one.data + one.bytes;
      if (!inside && *at != std::byte{kPoison}) violation("written outside: " + describe(at));
    }
    protect(one, PROT_NONE);
    madvise(one.pages, one.page_bytes, MADV_DONTNEED);
    one.live = false;
    used_ -= one.bytes;
    return true;
  }

  void open() {
    if (open_++ == 0) protect_all(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--open_ == 0) protect_all(PROT_NONE);
  }
  bool is_open() const { return open_ > 0; }

  bool owns(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    return at >= base_ && at < base_ + kSpace;
  }

  /// The reservation whose pages or guard page hold the address.
  const Reservation* find(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    for (const auto& [first, one] : reservations_) {
      if (at >= one.pages && at < one.pages + one.page_bytes + kPage) return &one;
    }
    return nullptr;
  }

  std::size_t total() const { return total_; }
  std::size_t used() const { return used_; }

  std::map<void*, std::size_t> pinned;

 private:
  Memory() {
    void* space = mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) violation("no address space for device memory");
    base_ = next_ = static_cast<std::byte*>(space);
    if (const char* limit = std::getenv("ESPALIER_FAKE_CUDA_MEMORY")) total_ = std::strtoull(limit, nullptr, 10);
    install_handler();
  }

  void protect(const Reservation& one, int how) const {
    if (mprotect(one.pages, one.page_bytes, how) != 0) violation("mprotect failed");
  }
  void protect_all(int how) const {
    for (const auto& [first, one] : reservations_) {
      if (one.live) protect(one, how);
    }
  }

  static void install_handler();

  std::byte* base_ = nullptr;
  std::byte* next_ = nullptr;
  std::size_t total_ = kDefaultMemory;
  std::size_t used_ = 0;
  int count_ = 0;
  int open_ = 0;
  std::map<std::byte*, Reservation> reservations_;
};

struct sigaction previous_handler;

/// Says what was touched; the process is lost, so that formatting in a signal handler can do no further harm.
void on_fault(int signal_number, siginfo_t* info, void* context) {
  Memory& memory = Memory::get();
  if (info->si_code > 0 && memory.owns(info->si_addr)) {
    char text[512];
    const std::string what = describe(info->si_addr);
    const std::string_view running_now = running();
    const int length =
        running_now.empty()
            ? std::snprintf(text, sizeof text, "fake cuda: the host touched device memory at %p: %s\n", info->si_addr,
                            what.c_str())
            : std::snprintf(text, sizeof text, "fake cuda: %.*s touched memory that is not its own at %p: %s\n",
                            static_cast<int>(running_now.size()), running_now.data(), info->si_addr, what.c_str());
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, static_cast<std::size_t>(length));
    std::array<void*, 40> frames{};
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    abort();
  }
  if ((previous_handler.sa_flags & SA_SIGINFO) != 0 && previous_handler.sa_sigaction != nullptr) {
    previous_handler.sa_sigaction(signal_number, info, context);
    return;
  }
  signal(signal_number, SIG_DFL);  // the faulting instruction runs again and ends the process as it would have
}

void Memory::install_handler() {
  constexpr std::size_t kStack = std::size_t{1} << 17;
  static std::vector<std::byte> stack(kStack);
  stack_t alternative{};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  sigaltstack(&alternative, nullptr);
  void* first_use[1];
  backtrace(first_use, 1);  // loads libgcc now, which a handler should not
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_handler);
}

}  // namespace

void* allocate_device(std::size_t bytes) { return Memory::get().allocate(bytes); }
bool free_device(void* data) { return Memory::get().free(data); }
std::size_t device_bytes_total() { return Memory::get().total(); }
std::size_t device_bytes_free() { return Memory::get().total() - Memory::get().used(); }

void* allocate_pinned(std::size_t bytes) {
  void* data = std::aligned_alloc(kPage, round_up(bytes, kPage));
  if (data == nullptr) return nullptr;
  std::memset(data, kPoison, round_up(bytes, kPage));
  Memory::get().pinned[data] = bytes;
  return data;
}

bool free_pinned(void* data) {
  if (Memory::get().pinned.erase(data) == 0) return false;
  std::free(data);
  return true;
}

Place place_of(const void* data) {
  Memory& memory = Memory::get();
  if (memory.owns(data)) return Place::device;
  const auto* at = static_cast<const std::byte*>(data);
  for (const auto& [first, bytes] : memory.pinned) {
    if (at >= static_cast<std::byte*>(first) && at < static_cast<std::byte*>(first) + bytes) return Place::pinned;
  }
  return Place::pageable;
}

std::string describe(const void* data) {
  Memory& memory = Memory::get();
  if (!memory.owns(data)) return "";
  const Reservation* one = memory.find(data);
  if (one == nullptr) return "no reservation";
  const std::ptrdiff_t byte = static_cast<const std::byte*>(data) - one->data;
  return "byte " + std::to_string(byte) + " of " + (one->live ? "" : "freed ") + "reservation " +
         std::to_string(one->number) + " (" + std::to_string(one->bytes) + " bytes)";
}

void check_range(const void* data, std::size_t bytes, const char* what) {
  Memory& memory = Memory::get();
  if (bytes == 0 || !memory.owns(data)) return;
  const Reservation* one = memory.find(data);
  const auto* at = static_cast<const std::byte*>(data);
  if (one == nullptr || !one->live || at < one->data || at + bytes > one->data + one->bytes) {
    violation(std::string(what) + ": " + std::to_string(bytes) + " bytes from " + describe(data) +
              " are not one live reservation");
  }
}

void violation(const std::string& text) {
  std::fprintf(stderr, "fake cuda: %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

OpenMemory::OpenMemory() { Memory::get().open(); }
OpenMemory::~OpenMemory() { Memory::get().close(); }

}  // namespace fake
