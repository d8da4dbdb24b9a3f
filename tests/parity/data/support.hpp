#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "index_file.hpp"
#include "parity/data/sha256.hpp"

namespace espalier::testing {

inline std::string data_fixture(const std::string& path) {
  return std::string(ESPALIER_FIXTURES_DIR) + "/data/" + path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
  ASSERT_TRUE(stream.flush()) << path;
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

template <typename T>
std::string sha256_of(std::span<const T> values) {
  return sha256(values.data(), values.size_bytes());
}

/// An empty folder, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "espalier_data_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("no temporary folder " + pattern);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  /// Names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      result.push_back(entry.path().filename().string());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  std::string path_;
};

/// Copies a pair of the fixtures into a folder and returns its prefix there.
inline std::string copy_pair(const std::string& fixture, const TemporaryFolder& folder) {
  const std::string prefix = folder / std::filesystem::path(fixture).filename().string();
  for (const std::string extension : {".bin", ".idx"}) {
    write_file(prefix + extension, read_file(data_fixture(fixture) + extension));
  }
  return prefix;
}

template <typename T>
std::vector<T> as_vector(const nlohmann::json& json) {
  return json.get<std::vector<T>>();
}

/// The message of the exception of type E that `call` throws; fails the test when it throws none.
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace espalier::testing
