#include <sched.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.hpp"
#include "commands/devices.hpp"
#include "config/open.hpp"
#include "espalier/version.hpp"
#include "program.hpp"

namespace espalier::app {

namespace {

void line(std::string_view what, std::string_view value) { fmt::print("{:<22} {}\n", what, value); }

/// First line of a file below /proc or /sys that starts with `key`, without it; "" where there is none.
std::string proc_line(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    if (!text.starts_with(key)) continue;
    const auto colon = text.find(':');
    const auto start = text.find_first_not_of(" \t", colon == std::string::npos ? key.size() : colon + 1);
    return start == std::string::npos ? "" : text.substr(start);
  }
  return "";
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                      : static_cast<int>(std::thread::hardware_concurrency());
}

std::string instruction_sets() {
  __builtin_cpu_init();
  const std::string flags = " " + proc_line("/proc/cpuinfo", "flags") + " ";
  // From /proc/cpuinfo: the compiler's own list does not know AMX.
  const std::pair<const char*, const char*> known[] = {{"sse4_2", "SSE4.2"},
                                                       {"avx2", "AVX2"},
                                                       {"fma", "FMA"},
                                                       {"f16c", "F16C"},
                                                       {"avx512f", "AVX-512"},
                                                       {"avx512_vnni", "VNNI"},
                                                       {"avx512_bf16", "AVX-512 BF16"},
                                                       {"avx512_fp16", "AVX-512 FP16"},
                                                       {"amx_bf16", "AMX BF16"},
                                                       {"amx_int8", "AMX INT8"}};
  std::string list;
  for (const auto& [flag, name] : known) {
    if (flags.find(" " + std::string(flag) + " ") != std::string::npos)
      list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list.empty() ? "none of those the kernels know: the portable ones run" : list;
}

std::string cuda() {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string found;
  const std::string driver = proc_line("/proc/driver/nvidia/version", "NVRM");
  found = driver.empty() ? "no driver" : "driver " + driver;
  std::string toolkit;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(name); home && fs::exists(fs::path(home) / "bin/nvcc", error)) toolkit = home;
  }
  if (toolkit.empty() && fs::exists("/usr/local/cuda/bin/nvcc", error)) toolkit = "/usr/local/cuda";
  return found + "; " + (toolkit.empty() ? "no toolkit (CUDA_HOME, /usr/local/cuda)" : "toolkit in " + toolkit);
}

std::string disk() {
  struct statvfs info {};
  if (statvfs(".", &info) != 0) return "unknown";
  return fmt::format("{:.1f} GiB free in the working directory, {} free inodes",
                     static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / (1 << 30),
                     info.f_favail);
}

std::string mpi() {
  const Launch launch = detect_launch();
  if (launch.launcher.empty()) return "no launcher: one rank (mpiexec -n 2 trainer ... starts two)";
  return fmt::format("{} = {} tasks; local rank {} of {}", launch.launcher, launch.launched_tasks, launch.local_rank,
                     launch.local_size);
}

/// Every plugin that is found, in one line; what would be refused says so. Then the devices that plugins find.
void plugins() {
  const auto host = make_plugin_host("", {});
  for (const auto& folder : host->search_path()) line("plugin folder", folder.string());
  for (const PluginListing& one : host->list()) {
    line("  " + one.name, one.problem.empty() ? one.version : "refused: " + one.problem);
  }
  for (const std::string& device : find_devices(*host)) line("device", device);
}

int run(const Args&) {
  line("espalier", version());
  line("processor", proc_line("/proc/cpuinfo", "model name"));
  line("cores", fmt::format("{} allowed of {}", allowed_cores(), std::thread::hardware_concurrency()));
  line("instruction sets", instruction_sets());
  line("memory", proc_line("/proc/meminfo", "MemTotal") + ", available " + proc_line("/proc/meminfo", "MemAvailable"));
  line("disk", disk());
  line("MPI", mpi());
  line("CUDA", cuda());
  line("program", program_dir().string());
  line("tokenizers", "bytes, huggingface (tokenizer.json), sentencepiece");
  plugins();
  std::cout.flush();
  return 0;
}

}  // namespace

const Command kDoctor{"doctor",
                      "what this machine offers: cores, instruction sets, memory, MPI, CUDA, plugins, devices and their speed",
                      "Run it first on a new machine, and under the launcher you will train with:\n"
                      "  trainer doctor\n"
                      "  mpiexec -n 2 trainer doctor",
                      {},
                      run, true};

}  // namespace espalier::app
