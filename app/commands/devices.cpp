#include "commands/devices.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "espalier/backend.hpp"
#include "session/host_context.hpp"

namespace espalier::app {

namespace {

/// "kernels_fused_cuda" makes a backend "cuda": the name says that it is kernels_fused for that device.
bool is_device_variant(const LoadedPlugin& plugin) {
  return std::any_of(plugin.factories().begin(), plugin.factories().end(), [&](const Factory& factory) {
    return std::string_view(factory.kind) == kKind<Backend> && plugin.name().ends_with("_" + std::string(factory.name));
  });
}

constexpr std::size_t kBytes = std::size_t{64} << 20;  // two of them are beyond any cache

/// @param times_moved  how often a copy moves its bytes over what is measured.
double gigabytes_a_second(Device& device, std::byte* from, std::byte* to, double times_moved) {
  constexpr double kSeconds = 0.1;  // of one measurement, about
  Stream& stream = device.lane(Lane::compute);
  const auto n = static_cast<std::int64_t>(kBytes);
  const auto seconds_of = [&](int copies) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < copies; ++i) {
      device.copy(View::vector(from, n, DType::u8), View::vector(to, n, DType::u8), stream);
    }
    device.wait(stream);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = seconds_of(1);  // pages are mapped, clocks go up
  const int copies = std::clamp(static_cast<int>(kSeconds / std::max(first, 1e-6)), 1, 10);
  return times_moved * copies * static_cast<double>(kBytes) / seconds_of(copies) * 1e-9;
}

std::string speeds(Device& device) {
  try {
    const DeviceMemory a = device.reserve(kBytes, "doctor");
    const DeviceMemory b = device.reserve(kBytes, "doctor");
    const std::string within = fmt::format("copies of {} MiB: {:.1f} GB/s within the device (read and written)",
                                           kBytes >> 20, gigabytes_a_second(device, a.data(), b.data(), 2));
    if (device.host_accessible()) return within;
    const DeviceMemory pinned = device.reserve_near_host(kBytes, "doctor");
    const auto other = std::make_unique<std::byte[]>(kBytes);
    return within +
           fmt::format(
               ", {:.1f} GB/s from pinned host memory, {:.1f} GB/s to it, {:.1f} and {:.1f} GB/s from and to other "
               "host memory",
               gigabytes_a_second(device, pinned.data(), a.data(), 1),
               gigabytes_a_second(device, a.data(), pinned.data(), 1),
               gigabytes_a_second(device, other.get(), a.data(), 1),
               gigabytes_a_second(device, a.data(), other.get(), 1));
  } catch (const DeviceError& error) {
    return std::string("speeds not measured: ") + error.what();
  }
}

}  // namespace

std::vector<std::string> find_devices(PluginHost& host) {
  std::vector<std::string> lines;
  lines.push_back("cpu: " + speeds(*make_cpu_device()));
  const auto threads = make_thread_pool(1);
  Services services;
  services.threads = threads.get();
  for (const PluginListing& listing : host.list()) {
    if (listing.plugin == nullptr || !is_device_variant(*listing.plugin)) continue;
    const LoadedPlugin& plugin = *listing.plugin;
    const auto specs = plugin.options<Backend>();
    const bool by_index = std::any_of(specs.begin(), specs.end(),
                                      [](const OptionSpec& spec) { return std::string_view(spec.name) == "index"; });
    for (std::int64_t index = 0;; ++index) {
      ConfigTable options;
      if (by_index) options.values["index"] = {index, {}};
      std::vector<ConfigProblem> problems;
      check_options(options, "backend", specs, {}, problems);
      ComponentHost context(std::string(plugin.name()), services);
      try {
        const auto backend = plugin.create<Backend>(ConfigView(options, "backend"), context);
        lines.push_back(backend->description() + "; " + speeds(backend->device()));
      } catch (const ConfigError& error) {
        if (index == 0) lines.emplace_back(error.what());
        break;  // an index beyond the last
      } catch (const Error& error) {
        lines.emplace_back(error.what());
        if (index == 0) break;
      }
      if (!by_index) break;
    }
  }
  return lines;
}

}  // namespace espalier::app
