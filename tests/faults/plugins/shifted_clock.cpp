// Preloaded into one rank: its clocks jump ahead by a minute a second after the first look at them.
#include <dlfcn.h>
#include <time.h>

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (clock != CLOCK_MONOTONIC || result != 0) return result;
  static const time_t first = time->tv_sec;
  if (time->tv_sec > first + 1) time->tv_sec += 60;
  return result;
}
