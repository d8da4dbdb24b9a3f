#include "telemetry/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace espalier::app {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

struct LogState {
  int rank = 0;
  int world = 1;
  std::shared_ptr<spdlog::sinks::sink> terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::shared_ptr<spdlog::logger> logger;

  LogState() : logger(std::make_shared<spdlog::logger>("espalier", terminal)) {
    logger->set_level(spdlog::level::debug);
    terminal->set_level(spdlog::level::info);
    terminal->set_pattern("%v");
    logger->flush_on(spdlog::level::warn);
  }
};

LogState& state() {
  // Never destroyed: plugins may log while static objects go.
  static LogState* const instance = new LogState;
  return *instance;
}

}  // namespace

void start_log(int rank, int world, LogLevel level) {
  LogState& log = state();
  log.rank = rank;
  log.world = world;
  log.terminal->set_level(rank == 0 ? to_spdlog(level) : std::max(to_spdlog(level), spdlog::level::warn));
}

void log_to_file(const std::filesystem::path& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(), false);
    sink->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%l] %v");
    sink->set_level(spdlog::level::debug);
    state().logger->sinks().push_back(std::move(sink));
    state().logger->flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& error) {
    throw IoError(path.string() + ": cannot write the log: " + error.what());
  }
}

void log(LogLevel level, std::string_view who, std::string_view text) {
  const LogState& log = state();
  std::string line;
  if (log.world > 1) line += "[rank " + std::to_string(log.rank) + "] ";
  if (level == LogLevel::warning) line += "warning: ";
  if (level == LogLevel::error) line += "error: ";
  if (!who.empty()) line.append(who).append(": ");
  line.append(text);
  log.logger->log(to_spdlog(level), line);
}

LogLevel parse_log_level(std::string_view name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  return LogLevel::info;
}

}  // namespace espalier::app
