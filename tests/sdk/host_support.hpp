#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "host/plugin_host.hpp"

namespace espalier::sdk_test {

using app::PluginHost;
using app::PluginListing;

/// Services of a host that only collects what is logged.
class TestContext : public HostContext {
 public:
  void log(LogLevel /*level*/, std::string_view text) override { lines.emplace_back(text); }
  const RunFacts& facts() const override { return facts_; }
  Communicator& communicator(Group /*group*/) override { throw Error(ExitCode::internal, "no communicator here"); }
  ThreadPool& threads() override { throw Error(ExitCode::internal, "no threads here"); }
  Backend& backend() override { throw Error(ExitCode::internal, "no backend here"); }

  std::vector<std::string> lines;

 private:
  RunFacts facts_;
};

/// A folder of its own that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "espalier-sdk-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs `action` and returns the message of the Error it throws; its exit code goes to `code`.
template <class Action>
std::string message_of(Action&& action, ExitCode expected = ExitCode::plugin) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace espalier::sdk_test
