#include "interop/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string_view>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

constexpr double kNoise = 1e-8;

bool counts(std::string_view name) { return name == "logits" || name == "loss" || name.starts_with("grad."); }

/// "grad.transformer.h.0.…" and "grad.h.0.…" are the same tensor.
std::string plain(std::string_view name) {
  constexpr std::string_view kPrefixed = "grad.transformer.";
  return name.starts_with(kPrefixed) ? "grad." + std::string(name.substr(kPrefixed.size())) : std::string(name);
}

void measure(const FileTensor& found, const FileTensor& reference, TensorError& error) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 16;
  std::vector<float> a, b;
  double squares = 0;
  for (std::int64_t begin = 0; begin < reference.elements(); begin += kBlock) {
    const std::int64_t n = std::min(kBlock, reference.elements() - begin);
    a.resize(static_cast<std::size_t>(n));
    b.resize(static_cast<std::size_t>(n));
    read_f32(found, begin, a);
    read_f32(reference, begin, b);
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = a[static_cast<std::size_t>(i)], y = b[static_cast<std::size_t>(i)];
      squares += y * y;
      const bool same = x == y || (std::isnan(x) && std::isnan(y));
      double difference = same ? 0.0 : std::fabs(x - y);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      if (difference > error.largest) {
        error.largest = difference;
        error.at = begin + i;
      }
    }
  }
  error.rms = std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(reference.elements(), 1)));
}

}  // namespace

double TensorError::relative() const {
  const double error = std::max(0.0, largest - kNoise);
  if (error == 0) return 0;
  return rms > 0 ? error / rms : std::numeric_limits<double>::infinity();
}

std::vector<TensorError> compare_numerics(const SafetensorsFile& found, const SafetensorsFile& reference) {
  std::vector<TensorError> errors;
  for (const FileTensor& expected : reference.tensors()) {
    if (!counts(expected.name)) continue;
    TensorError error;
    error.name = plain(expected.name);
    const auto at = std::find_if(found.tensors().begin(), found.tensors().end(),
                                 [&](const FileTensor& tensor) { return plain(tensor.name) == error.name; });
    if (at == found.tensors().end()) {
      error.problem = "missing";
    } else if (at->elements() != expected.elements()) {
      error.problem = fmt::format("shape {}, reference {}", at->shape_text(), expected.shape_text());
    } else {
      measure(*at, expected, error);
    }
    errors.push_back(std::move(error));
  }
  if (errors.empty()) {
    throw IoError(reference.path().string() + ": has no tensor logits, loss or grad.…: nothing to compare with");
  }
  std::stable_sort(errors.begin(), errors.end(), [](const TensorError& a, const TensorError& b) {
    return std::pair(!a.problem.empty(), a.relative()) > std::pair(!b.problem.empty(), b.relative());
  });
  return errors;
}

void print(std::ostream& out, const std::vector<TensorError>& errors) {
  out << fmt::format("{:<58} {:>12} {:>12} {:>12}  {}\n", "tensor (worst first)", "max error", "ref rms", "error/rms",
                     "at");
  for (const TensorError& error : errors) {
    if (error.problem.empty()) {
      out << fmt::format("{:<58} {:>12.3e} {:>12.3e} {:>12.3e}  {}\n", error.name, error.largest, error.rms,
                         error.relative(), error.at);
    } else {
      out << fmt::format("{:<58} {}\n", error.name, error.problem);
    }
  }
}

}  // namespace espalier::app
