#include "matrix.hpp"

#include <algorithm>

namespace espalier::kernels_fused {
namespace {

// Tiles of the result where oneDNN reads the operands as they lie. 256 rows keep its packed panels in the second-level
// cache; columns are left whole as long as they can be, since oneDNN has its fastest kernels for rows without a gap.
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kWholeColumns = 2048;
constexpr std::int64_t kTileColumns = 512;
constexpr std::int64_t kTileWork = 64 << 20;  // products

// Blocks of the widened path: 256 KiB each for a, b and the sum, together within a megabyte of second-level cache.
constexpr std::int64_t kBlock = 256;
// Rows of the widened a are this much longer than a power of two, which would put them all into the same cache sets.
constexpr std::int64_t kPad = 16;
constexpr std::size_t kBlockBytes = static_cast<std::size_t>(kBlock * (kBlock + kPad)) * sizeof(float);

/// [0, size) cut into equal parts of at most `most`, each a multiple of 16 but the last.
struct Cut {
  Cut(std::int64_t whole, std::int64_t most) : size(whole) {
    const std::int64_t parts = std::max<std::int64_t>(1, (whole + most - 1) / most);
    step = std::max<std::int64_t>(16, ((size + parts - 1) / parts + 15) / 16 * 16);
    count = (size + step - 1) / step;
  }
  std::int64_t begin(std::int64_t part) const { return part * step; }
  std::int64_t length(std::int64_t part) const { return std::min(step, size - part * step); }

  std::int64_t size, step = 0, count = 0;
};

/// Element (row, k) of op(a), or (k, column) of op(b), in the matrix as stored.
std::byte* element(const View& view, bool transposed, std::int64_t row, std::int64_t col) {
  return transposed ? view.at(col, row) : view.at(row, col);
}

struct Dims {
  explicit Dims(const Matmul& args)
      : m(args.dst.rows), n(args.dst.cols), k(args.transpose_a ? args.a.rows : args.a.cols) {
    ESPALIER_ASSERT((args.transpose_a ? args.a.cols : args.a.rows) == m);
    ESPALIER_ASSERT((args.transpose_b ? args.b.cols : args.b.rows) == k);
    ESPALIER_ASSERT((args.transpose_b ? args.b.rows : args.b.cols) == n);
    ESPALIER_ASSERT(args.a.dtype == args.b.dtype && (!args.accumulate || args.dst.dtype == DType::f32));
  }
  std::int64_t m, n, k;
};

/// a and dst in cuts of rows and columns as the fast path takes them.
Cut rows_of(const Matmul& args, const Dims& dims) {
  if (!args.transpose_a) return {dims.m, kTileRows};
  // Part of a transposed a has gaps between its rows, which costs a tenth: not for tiles of less than half a
  // millisecond.
  return {dims.m, std::max(kTileRows, kTileWork / std::max<std::int64_t>(1, dims.n * dims.k))};
}
Cut columns_of(const Dims& dims) { return {dims.n, dims.n <= kWholeColumns ? kWholeColumns : kTileColumns}; }

}  // namespace

Reason FusedMatrix::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused: no matrix kernels for " + std::string(name_of(working));
}

std::size_t FusedMatrix::workspace(const Matmul& shape) const {
  // oneDNN packs at most the two operands of a tile.
  const Dims dims(shape);
  const std::size_t packed = direct(shape)
                                 ? static_cast<std::size_t>(rows_of(shape, dims).step + columns_of(dims).step) *
                                       static_cast<std::size_t>(dims.k) * size_of(shape.a.dtype)
                                 : 3 * kBlockBytes;
  return packed * static_cast<std::size_t>(lanes_.size());
}

bool FusedMatrix::direct(const Matmul& args) const {
  const auto same = [&](const View& view) { return view.dtype == args.a.dtype; };
  if (args.bias.data != nullptr && !same(args.bias)) return false;
  if (args.dst.dtype != DType::f32 && !same(args.dst)) return false;
  if (args.a.dtype == DType::bf16) return set_ >= InstructionSet::avx512_bf16;
  if (args.a.dtype != DType::f32) return false;
  // oneDNN's AVX2 kernel does not pack: rows a page apart (a transposed a, a b of 1,024 columns) cost it half its speed, and with
  // accumulation it adds each term to what dst held. Blocks copied into the cache have neither.
  return set_ != InstructionSet::avx2;
}

void FusedMatrix::matmul(const Matmul& args, Stream&) {
  const Dims dims(args);
  if (dims.m == 0 || dims.n == 0) return;
  if (dims.k != 0 && direct(args)) {
    multiply_direct(args);
  } else {
    multiply_widened(args);
  }
}

void FusedMatrix::multiply_direct(const Matmul& args) {
  const Dims dims(args);
  const Cut rows = rows_of(args, dims), columns = columns_of(dims);
  const auto plan_of = [&](std::int64_t m, std::int64_t n) -> const OneDnn::Plan& {
    return onednn_.prepare({m, n, dims.k, args.a.row_stride, args.b.row_stride, args.dst.row_stride, args.a.dtype,
                            args.dst.dtype, args.bias.dtype, args.transpose_a, args.transpose_b, args.accumulate,
                            args.bias.data != nullptr});
  };
  // All tiles are alike but those of the last row and column.
  const OneDnn::Plan* plans[2][2];
  std::size_t scratch = 0;
  for (const int i : {0, 1}) {
    for (const int j : {0, 1}) {
      plans[i][j] = &plan_of(rows.length(i == 0 ? 0 : rows.count - 1), columns.length(j == 0 ? 0 : columns.count - 1));
      scratch = std::max(scratch, OneDnn::scratch_bytes(*plans[i][j]));
    }
  }
  lanes_.reserve(scratch);
  lanes_.pool().run(rows.count * columns.count, [&](std::int64_t item) {
    const std::int64_t i = item / columns.count, j = item % columns.count;
    const std::int64_t row = rows.begin(i), column = columns.begin(j);
    const Lanes::Hold lane(lanes_);
    onednn_.run(*plans[i == rows.count - 1][j == columns.count - 1], lane.index(),
                element(args.a, args.transpose_a, row, 0), element(args.b, args.transpose_b, 0, column),
                args.bias.data == nullptr ? nullptr : args.bias.at(0, column), args.dst.at(row, column), lane.bytes());
  });
}

void FusedMatrix::multiply_widened(const Matmul& args) {
  const Dims dims(args);
  const Cut rows(dims.m, kBlock), columns(dims.n, kBlock), depth(dims.k, kBlock);
  const auto plan_of = [&](bool last_row, bool last_column, bool last_k, bool accumulate) -> const OneDnn::Plan& {
    const std::int64_t m = rows.length(last_row ? rows.count - 1 : 0);
    const std::int64_t n = columns.length(last_column ? columns.count - 1 : 0);
    const std::int64_t k = depth.length(last_k ? depth.count - 1 : 0);
    return onednn_.prepare({m, n, k, kBlock + kPad, kBlock + kPad, kBlock, DType::f32, DType::f32, DType::f32,
                            args.transpose_a, args.transpose_b, accumulate, false});
  };
  const OneDnn::Plan* plans[2][2][2][2] = {};
  std::size_t scratch = 0;
  for (int i = 0; i < 16 && dims.k != 0; ++i) {
    const OneDnn::Plan*& plan = plans[i & 1][i >> 1 & 1][i >> 2 & 1][i >> 3];
    plan = &plan_of((i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0);
    scratch = std::max(scratch, OneDnn::scratch_bytes(*plan));
  }
  lanes_.reserve(3 * kBlockBytes + scratch);
  const std::size_t width = size_of(args.a.dtype);

  const auto widen = [&](const std::byte* from, std::int64_t stride, std::int64_t lines, std::int64_t n, float* to) {
    for (std::int64_t line = 0; line < lines; ++line) {
      simd_.convert.convert(from + static_cast<std::size_t>(line * stride) * width, args.a.dtype,
                            to + line * (kBlock + kPad), DType::f32, n);
    }
  };

  lanes_.pool().run(rows.count * columns.count, [&](std::int64_t item) {
    const std::int64_t i = item / columns.count, j = item % columns.count;
    const std::int64_t row = rows.begin(i), column = columns.begin(j), m = rows.length(i), n = columns.length(j);
    const Lanes::Hold lane(lanes_);
    float* a = lane.floats();
    float* b = a + kBlockBytes / sizeof(float);
    float* sum = b + kBlockBytes / sizeof(float);
    for (std::int64_t part = 0; part < depth.count; ++part) {
      const std::int64_t first = depth.begin(part), k = depth.length(part);
      widen(element(args.a, args.transpose_a, row, first), args.a.row_stride, args.transpose_a ? k : m,
            args.transpose_a ? m : k, a);
      widen(element(args.b, args.transpose_b, first, column), args.b.row_stride, args.transpose_b ? n : k,
            args.transpose_b ? k : n, b);
      const OneDnn::Plan* plan = plans[i == rows.count - 1][j == columns.count - 1][part == depth.count - 1][part != 0];
      onednn_.run(*plan, lane.index(), a, b, nullptr, sum, lane.bytes() + 3 * kBlockBytes);
    }
    for (std::int64_t r = 0; r < m; ++r) {
      float* from = sum + r * kBlock;
      if (depth.count == 0) std::fill(from, from + n, 0.0f);
      if (args.accumulate) {
        simd_.convert.add_bias(from, args.dst.at(row + r, column), DType::f32, from, DType::f32, n);
      }
      simd_.convert.add_bias(from, args.bias.data == nullptr ? nullptr : args.bias.at(0, column), args.bias.dtype,
                             args.dst.at(row + r, column), args.dst.dtype, n);
    }
  });
}

void FusedMatrix::column_sum(const View& src, const View& dst, bool accumulate, Stream&) {
  ESPALIER_ASSERT(dst.cols == src.cols && dst.dtype == DType::f32);
  constexpr std::int64_t kColumns = 128;  // 256 bytes of BF16: four cache lines of each row
  const std::int64_t items = (src.cols + kColumns - 1) / kColumns;
  lanes_.pool().run(items, [&](std::int64_t item) {
    const std::int64_t begin = item * kColumns, end = std::min(src.cols, begin + kColumns);
    simd_.convert.column_sum(src.col_range(begin, end), dst.as<float>() + begin, accumulate);
  });
}

void FusedMatrix::gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
                       const View& dst) {
  Matmul args;
  args.a = a;
  args.b = b;
  args.dst = dst;
  args.transpose_a = transpose_a;
  args.transpose_b = transpose_b;
  const Dims dims(args);
  ESPALIER_ASSERT(a.dtype == DType::f32 && dst.dtype == DType::f32);
  if (dims.m == 0 || dims.n == 0) return;
  const Cut rows(dims.m, kTileRows), columns(dims.n, kTileColumns);
  lanes_.pool().run(rows.count * columns.count, [&](std::int64_t item) {
    const std::int64_t i = item / columns.count, j = item % columns.count;
    GemmShape shape;
    shape.m = rows.length(i);
    shape.n = columns.length(j);
    shape.k = dims.k;
    shape.a_stride = a.row_stride;
    shape.b_stride = b.row_stride;
    shape.dst_stride = dst.row_stride;
    shape.transpose_a = transpose_a;
    shape.transpose_b = transpose_b;
    OneDnn::sgemm(shape, static_cast<float>(alpha),
                  reinterpret_cast<const float*>(element(a, transpose_a, rows.begin(i), 0)),
                  reinterpret_cast<const float*>(element(b, transpose_b, 0, columns.begin(j))),
                  static_cast<float>(beta), reinterpret_cast<float*>(dst.at(rows.begin(i), columns.begin(j))));
  });
}

}  // namespace espalier::kernels_fused
