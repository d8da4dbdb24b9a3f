#include "commands/devices.hpp"

#include <algorithm>
#include <chrono>
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

double gigabytes_a_second(Device& device, const DeviceMemory& from, const DeviceMemory& to, double times_moved) {
  constexpr int kCopies = 5;
  Stream& stream = device.lane(Lane::compute);
  const auto n = static_cast<std::int64_t>(from.bytes());
  const auto copy = [&] {
    device.copy(View::vector(from.data(), n, DType::u8), View::vector(to.data(), n, DType::u8), stream);
  };
  copy();
  device.wait(stream);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCopies; ++i) copy();
  device.wait(stream);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return times_moved * kCopies * static_cast<double>(from.bytes()) / seconds.count() * 1e-9;
}

std::string speeds(Device& device) {
  try {
    constexpr std::size_t kBytes = std::size_t{64} << 20;  // two of them are beyond any cache
    const DeviceMemory a = device.reserve(kBytes, "doctor");
    const DeviceMemory b = device.reserve(kBytes, "doctor");
    const DeviceMemory host = device.reserve_near_host(kBytes, "doctor");
    return fmt::format(
        "; copies of {} MiB: {:.0f} GB/s within the device (read and written), {:.1f} GB/s from pinned host memory, "
        "{:.1f} GB/s to it",
        kBytes >> 20, gigabytes_a_second(device, a, b, 2), gigabytes_a_second(device, host, a, 1),
        gigabytes_a_second(device, a, host, 1));
  } catch (const DeviceError& error) {
    return std::string("; speeds not measured: ") + error.what();
  }
}

}  // namespace

std::vector<std::string> find_devices(PluginHost& host) {
  std::vector<std::string> lines;
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
        lines.push_back(backend->description() + speeds(backend->device()));
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
