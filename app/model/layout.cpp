#include "model/layout.hpp"

#include <algorithm>

namespace espalier::app {
namespace {

/// A split of the last dimension of a matrix: each local row is a run of `end − begin` columns, padding at its end.
void column_runs(const LocalParameter& local, std::int64_t begin, std::int64_t end,
                 FunctionRef<void(const Run&)> body) {
  const Placement& place = local.placement;
  const std::int64_t width = place.local.cols();
  const std::int64_t real = place.real_end - place.begin;
  const std::int64_t logical_width = local.parameter.shape.cols();
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = at / width;
    const std::int64_t col = at % width;
    const bool padding = col >= real;
    const std::int64_t stop = std::min(end, row * width + (padding ? width : real));
    body({at, padding ? -1 : row * logical_width + place.begin + col, stop - at});
    at = stop;
  }
}

}  // namespace

void for_each_run(const LocalParameter& local, std::int64_t begin, std::int64_t end,
                  FunctionRef<void(const Run&)> body) {
  const Placement& place = local.placement;
  if (begin >= end) return;
  if (place.dim < 0) {
    body({begin, begin, end - begin});
    return;
  }
  if (place.dim == 1) {
    column_runs(local, begin, end, body);
    return;
  }
  // Split by the first dimension: rows of a matrix, elements of a vector.
  const Shape& shape = local.parameter.shape;
  const std::int64_t width = shape.rank() >= 2 ? shape.cols() : 1;
  const std::int64_t real = (place.real_end - place.begin) * width;
  if (begin < real) {
    const std::int64_t stop = std::min(end, real);
    body({begin, place.begin * width + begin, stop - begin});
  }
  if (end > real) {
    const std::int64_t start = std::max(begin, real);
    body({start, -1, end - start});
  }
}

void for_each_run(const LocalParameter& local, const StatePiece& piece, FunctionRef<void(const Run&)> body) {
  if (piece.whole) {
    if (piece.begin < piece.end) body({piece.begin, piece.begin, piece.end - piece.begin});
    return;
  }
  for_each_run(local, piece.begin, piece.end, body);
}

}  // namespace espalier::app
