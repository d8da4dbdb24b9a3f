// What a strategy gets from its host, for tests: groups, facts, a backend, and what it logged.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/host.hpp"

namespace espalier::testing_support {

class TestHost final : public HostContext {
 public:
  /// Groups that are not given have one rank.
  explicit TestHost(Backend& backend, std::unique_ptr<Communicator> data = nullptr,
                    std::unique_ptr<Communicator> tensor = nullptr, std::unique_ptr<Communicator> pipeline = nullptr)
      : backend_(backend), threads_(make_thread_pool(1)) {
    groups_ = {nullptr, std::move(tensor), std::move(data), std::move(pipeline)};
    constexpr const char* kNames[] = {"world", "tensor", "data", "pipeline"};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g] == nullptr) groups_[g] = make_self_communicator(kNames[g]);
    }
  }

  void log(LogLevel, std::string_view text) override { lines.emplace_back(text); }
  const RunFacts& facts() const override { return run; }
  Communicator& communicator(Group group) override { return *groups_[static_cast<std::size_t>(group)]; }
  ThreadPool& threads() override { return *threads_; }
  Backend& backend() override { return backend_; }

  std::vector<std::string> lines;
  RunFacts run;

 private:
  Backend& backend_;
  std::unique_ptr<ThreadPool> threads_;
  std::array<std::unique_ptr<Communicator>, 4> groups_;
};

/// A component's table as a recipe gives it, defaults filled in. @throws ConfigError where the recipe would.
class TestConfig {
 public:
  TestConfig(std::span<const OptionSpec> specs, std::map<std::string, ConfigValue::Data> values) {
    for (auto& [key, data] : values) table_.values[key].data = std::move(data);
    std::vector<ConfigProblem> problems;
    check_options(table_, "component", specs, {}, problems);
    throw_if_any(problems);
  }
  ConfigView view() const { return ConfigView(table_, "component"); }

 private:
  ConfigTable table_;
};

}  // namespace espalier::testing_support
