#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "espalier/dtype.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier::app {

/// One logical tensor of a model in files, read a block at a time. What is mapped of it is given back when it goes.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  /// Elements [first, first + dst.size()) of the logical tensor, row-major, as FP32.
  virtual void read(std::int64_t first, std::span<float> dst) = 0;
};

/// The weights of a model in files, whoever wrote them and however they lie there.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const ModelShape& shape() const = 0;
  /// For messages.
  virtual const std::filesystem::path& folder() const = 0;
  /// Type a parameter is stored in: f32, bf16 or f16.
  virtual DType dtype_of(const Parameter& parameter) const = 0;
  /// Rows the source has of the parameter's first dimension; the vocabulary may be shorter than a model's.
  virtual std::int64_t rows_of(const Parameter& parameter) const = 0;
  /// @throws IoError when the tensor is missing or damaged.
  virtual std::unique_ptr<WeightReader> open(const Parameter& parameter) const = 0;
};

}  // namespace espalier::app
