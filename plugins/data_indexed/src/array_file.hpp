#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "block_check.hpp"
#include "npy.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {

using Shape = std::vector<std::int64_t>;

/// "ARRAY.npy.check"
std::string check_path(const std::string& array);

/// "it was made with …, now it is …" for the first line that differs, empty when none does.
std::optional<std::string> difference(std::string_view cached, std::string_view now);

/// A cached array with its checks.
struct ArrayFile {
  NpyArray array;
  std::shared_ptr<const CheckedFile> checked;

  /// Maps it when type, shape and length are right; reads its header only. Empty with the reason in `why` otherwise.
  static std::optional<ArrayFile> open(const std::string& path, BlockCheck check, const Shape& shape,
                                       std::string_view narrow, std::string_view wide, std::string& why);
};

/// One array on its way: written under a temporary name, hashed as it goes, with its check file.
class ArrayOutput {
 public:
  explicit ArrayOutput(const std::string& path) : array_(path), check_(check_path(path)) {}

  template <typename T>
  void store(const std::vector<T>& elements, const Shape& shape, bool sync) {
    const std::string header = npy_header(npy_descr<T>(), shape);
    write(header.data(), header.size());
    write(elements.data(), elements.size() * sizeof(T));
    sync ? array_.sync() : array_.finish();
  }
  void store_check(const std::string& settings, bool sync);

  /// Without its check file a half-replaced array is no cache. One that was made from the same stays: the array comes
  /// out the same, and another job may be opening it.
  void remove_other_check(const std::string& settings) const;
  OutputFile& array() { return array_; }
  OutputFile& check() { return check_; }

 private:
  void write(const void* data, std::size_t bytes) {
    hasher_.add(data, bytes);
    array_.write(data, bytes);
  }

  OutputFile array_;
  OutputFile check_;
  BlockHasher hasher_;
};

}  // namespace espalier::data_indexed
