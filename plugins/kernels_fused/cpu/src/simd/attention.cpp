// Causal attention with ALiBi, one head of one sample at a time: keys and values are widened once, then blocks of
// queries pass: scores of a block against all keys it may see, softmax, context. Scores never leave the cache and are
// made again in backward from the row's maximum and sum (Dao et al. 2022, arXiv:2205.14135, with whole rows instead of
// running maxima).
#include "simd/math.hpp"
#include "simd/philox.hpp"
#include "simd/small_gemm.hpp"
#include "simd/table.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

constexpr int64_t kDepth =
    256;  // keys of one pass of context and grad_q: [256, 2 registers] of values fit the first-level cache

constexpr int64_t kBlockQueries = 64;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// What backward remakes a row from; apart, since a log-sum-exp near 1,000 has lost the digits that probabilities need.
struct RowStatistics {
  float largest, total;
};

/// Sizes and scratch of one head.
struct Layout {
  Layout(const Attention& args, bool backward) {
    width = round_up(args.head_dim, kWidth);
    keys = round_up(args.keys, kTileColumns);
    // An odd number of cache lines: rows a power of two apart would share the sets of the cache.
    stride = round_up(keys, 32) + 16;
    // Scores of a block, twice in backward, within half a megabyte of second-level cache.
    queries = smaller(kBlockQueries, round_up(args.queries, kTileRows));
    while (queries > kTileRows && queries * stride > 65536) queries = round_up(queries / 2, kTileRows);
    int64_t at = 0;
    const auto take = [&](int64_t count) {
      const int64_t begin = at;
      at += round_up(count, 16);
      return begin;
    };
    keys_down = take(args.head_dim * stride);
    values = take(keys * width);
    q = take(queries * width);
    scores = take(queries * stride);
    context = take(queries * width);
    if (backward) {
      values_down = take(args.head_dim * stride);
      key_rows = take(keys * width);
      grad_keys = take(keys * width);
      grad_values = values;  // rows of values are needed in forward only
      grad_out = take(queries * width);
      products = take(queries * stride);
    }
    floats = at;
  }

  int64_t width, keys, stride, queries, floats;
  int64_t keys_down, values, q, scores, context;
  int64_t values_down = 0, key_rows = 0, grad_keys = 0, grad_values = 0, grad_out = 0, products = 0;
};

/// One head of one sample.
struct Head {
  Head(const Attention& shape, int64_t batch, int64_t index, bool backward)
      : args(shape), sample(batch), head(index), layout(shape, backward) {
    length = args.key_lengths != nullptr ? smaller(args.key_lengths[sample], args.keys) : args.keys;
    slope = args.slopes != nullptr ? args.slopes[head] : 0.0f;
  }

  const Attention& args;
  int64_t sample, head;
  Layout layout;
  int64_t length;
  float slope;

  /// Leading keys that query i may see.
  int64_t allowed(int64_t i) const { return i < args.queries ? smaller(args.first_query + i + 1, length) : 0; }

  int64_t offset(const AttentionOperand& operand, int64_t position) const {
    return sample * operand.batch_stride + position * operand.position_stride + head * operand.head_stride;
  }

  /// Rows [begin, end) of the operand, padded with zeros to layout.width and to `rows` rows.
  void read_rows(const AttentionOperand& operand, int64_t begin, int64_t end, int64_t rows, float* to) const {
    with_type(args.dtype, [&](auto t) {
      const auto* data = static_cast<const StorageOf<decltype(t)>*>(operand.data);
      for (int64_t r = 0; r < rows; ++r, to += layout.width) {
        const bool real = begin + r < end;
        const auto* from = data + (real ? offset(operand, begin + r) : 0);
        for (int64_t c = 0; c < layout.width; c += kWidth) {
          F x = zero();
          if (real && c < args.head_dim)
            x = c + kWidth <= args.head_dim ? load(from + c) : load_first(from + c, args.head_dim - c);
          store(to + c, x);
        }
      }
    });
  }

  void write_row(const AttentionOperand& operand, int64_t position, const float* from, F factor) const {
    with_type(args.dtype, [&](auto t) {
      auto* to = static_cast<decltype(t)>(operand.data) + offset(operand, position);
      for_columns(args.head_dim, [&](int64_t c, auto at) { at.put(to + c, at.get(from + c) * factor); });
    });
  }

  /// to[channel, key] = the operand's element, keys behind the last zero.
  void read_down(const AttentionOperand& operand, float* rows, float* to) const {
    read_rows(operand, 0, length, layout.keys, rows);
    transpose(rows, to);
  }
  void transpose(const float* rows, float* to) const {
    for (int64_t j = 0; j < layout.keys; j += 8) {
      for (int64_t d = 0; d < args.head_dim; d += 8) {
        transpose_block(rows + j * layout.width + d, to + d * layout.stride + j, smaller(8, args.head_dim - d));
      }
    }
  }
  /// An 8 × 8 block; only its first `channels` columns are stored. The rows are padded, so reading eight is safe.
  void transpose_block(const float* from, float* to, int64_t channels) const {
    __m256 r[8], s[8];
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * layout.width);
    for (int i = 0; i < 8; i += 2) {
      s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      if (i < channels) _mm256_storeu_ps(to + i * layout.stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      if (i + 4 < channels)
        _mm256_storeu_ps(to + (i + 4) * layout.stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }

  RowStatistics* statistics(int64_t i) const {
    return static_cast<RowStatistics*>(args.saved.data) + (sample * args.heads + head) * args.queries + i;
  }

  /// Columns that the tile of rows from i on needs: those its last row may see, in whole tiles.
  int64_t tile_columns(int64_t i) const {
    const int64_t last = smaller(i + kTileRows, args.queries) - 1;
    return last < i ? 0 : round_up(allowed(last), kTileColumns);
  }

  /// dst[block, key] = left · right for the keys each row may see. Columns outermost: a panel of `right` serves all
  /// rows.
  void multiply_by_keys(int64_t block, const float* left, const float* right, float* dst) const {
    const int64_t most = columns_of_block(block);
    for (int64_t c = 0; c < most; c += kTileColumns) {
      for (int64_t r = 0; r < layout.queries; r += kTileRows) {
        if (tile_columns(block + r) <= c) continue;
        multiply_rows(kTileColumns, args.head_dim, {left + r * layout.width, layout.width, 1}, right + c, layout.stride,
                      dst + r * layout.stride + c, layout.stride, false);
      }
    }
  }
  int64_t columns_of_block(int64_t block) const {
    return round_up(allowed(smaller(block + layout.queries, args.queries) - 1), kTileColumns);
  }

  /// dst[block, channel] = weights[block, key] · rows[key, channel].
  void multiply_over_keys(int64_t block, const float* weights, const float* rows, float* dst) const {
    for (int64_t r = 0; r < layout.queries; r += kTileRows) {
      const int64_t n = tile_columns(block + r);
      int64_t k = 0;
      do {
        multiply_rows(layout.width, smaller(kDepth, n - k), {weights + r * layout.stride + k, layout.stride, 1},
                      rows + k * layout.width, layout.width, dst + r * layout.width, layout.width, k != 0);
        k += kDepth;
      } while (k < n);
    }
  }

  /// sums[key, channel] += Σ over rows of the block that may see the key: weights[row, key] · rows[row, channel].
  void add_over_queries(int64_t block, const float* weights, const float* rows, float* sums) const {
    const int64_t last = smaller(block + layout.queries, args.queries);
    const int64_t most = allowed(last - 1);
    for (int64_t j = 0; j < most; j += kTileRows) {
      const int64_t above = j - args.first_query - block;
      const int64_t first = above > 0 ? above : 0;
      multiply_rows(layout.width, last - block - first, {weights + first * layout.stride + j, 1, layout.stride},
                    rows + first * layout.width, layout.width, sums + j * layout.width, layout.width, true);
    }
  }

  /// Score of the keys from c on for query i, from their products.
  F score(F product, int64_t c, int64_t i) const {
#if defined(__AVX512F__)
    const F lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    const F lane = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
#endif
    const F distance = broadcast(static_cast<float>(c - (args.first_query + i))) + lane;
    return fma(broadcast(slope), distance, product * broadcast(args.scale));
  }

  /// Calls body(column, mask) for kMaskElements columns at a time: which probabilities dropout keeps.
  template <class Body>
  void for_kept(int64_t i, int64_t n, Body&& body) const {
    const Dropout& dropout = args.dropout;
    const auto ordinal = static_cast<std::uint64_t>(dropout.first_sample + sample);
    const auto high =
        static_cast<std::uint32_t>(ordinal >> 32) ^ static_cast<std::uint32_t>((dropout.first_head + head) << 8);
    const std::uint32_t* key = &dropout.key[0];
    for (int64_t first = 0; first < n; first += kMaskElements) {
      const MaskBits bits =
          kept(key[0], key[1], static_cast<std::uint32_t>(first / 4), static_cast<std::uint32_t>(args.first_query + i),
               static_cast<std::uint32_t>(ordinal), high, dropout.threshold());
      for (int part = 0; part < 4 && first + part * kWidth < n; ++part)
        body(first + part * kWidth, part_of(bits, part));
    }
  }

  /// row: products in, exponentials (times the dropout mask) out, zeros behind the last allowed key up to `columns`.
  RowStatistics softmax_row(int64_t i, int64_t columns, float* row) const {
    const int64_t n = allowed(i);
    const F lowest = broadcast(-__builtin_inff());
    F largest = lowest;
    int64_t c = 0;
    for (; c + kWidth <= n; c += kWidth) {
      const F x = score(load(row + c), c, i);
      store(row + c, x);
      largest = max(largest, x);
    }
    if (c < n) {
      const F x = select(first_lanes(n - c), score(load(row + c), c, i), lowest);
      store(row + c, x);
      largest = max(largest, x);
    }
    RowStatistics out{reduce_max(largest), 0.0f};
    const F top = broadcast(out.largest);
    F sum = zero();
    for (c = 0; c + kWidth <= n; c += kWidth) {
      const F x = exp(load(row + c) - top);
      store(row + c, x);
      sum = sum + x;
    }
    if (c < n) {
      const F x = keep(first_lanes(n - c), exp(load(row + c) - top));
      store(row + c, x);
      sum = sum + x;
      c += kWidth;
    }
    for (; c < columns; c += kWidth) store(row + c, zero());
    out.total = reduce_add(sum);
    if (args.dropout.p > 0.0f) {
      const F factor = broadcast(args.dropout.scale());
      for_kept(i, n, [&](int64_t at, Mask mask) { store(row + at, keep(mask, load(row + at) * factor)); });
    }
    return out;
  }

  /// row: products in, probabilities (times the dropout mask) out. slopes: grad_out · value in, gradients of the
  /// products out.
  void gradient_row(int64_t i, int64_t columns, float* row, float* slopes) const {
    const int64_t n = allowed(i);
    if (n > 0) {
      const RowStatistics saved = *statistics(i);
      const F top = broadcast(saved.largest);
      const F share = broadcast(1.0f / saved.total);
      const bool dropping = args.dropout.p > 0.0f;
      const F factor = broadcast(args.dropout.scale());
      if (dropping) {
        for_kept(i, n, [&](int64_t c, Mask mask) { store(slopes + c, keep(mask, load(slopes + c) * factor)); });
      }
      F dot = zero();
      int64_t c = 0;
      for (; c + kWidth <= n; c += kWidth) {
        const F p = exp(score(load(row + c), c, i) - top) * share;
        store(row + c, p);
        dot = fma(p, load(slopes + c), dot);
      }
      if (c < n) {
        const Mask tail = first_lanes(n - c);
        const F p = keep(tail, exp(score(load(row + c), c, i) - top) * share);
        store(row + c, p);
        dot = dot + keep(tail, p * load(slopes + c));
      }
      const F mean = broadcast(reduce_add(dot));
      const F scale = broadcast(args.scale);
      for (c = 0; c < n; c += kWidth) store(slopes + c, load(row + c) * (load(slopes + c) - mean) * scale);
      if (dropping) {
        for_kept(i, n, [&](int64_t at, Mask mask) { store(row + at, keep(mask, load(row + at) * factor)); });
      }
    }
    for (int64_t c = round_up(n, kWidth); c < columns; c += kWidth) store(row + c, zero()), store(slopes + c, zero());
    // Behind n within the last register the probability is 0 but the product need not be a number.
    if (n % kWidth != 0) {
      const int64_t c = n - n % kWidth;
      store(slopes + c, keep(first_lanes(n - c), load(slopes + c)));
    }
  }
};

void forward(const Attention& args, int64_t sample, int64_t index, float* scratch) {
  const Head head(args, sample, index, false);
  const Layout& at = head.layout;
  float* q = scratch + at.q;
  float* scores = scratch + at.scores;
  float* context = scratch + at.context;
  head.read_down(args.k, scratch + at.values, scratch + at.keys_down);
  head.read_rows(args.v, 0, head.length, at.keys, scratch + at.values);
  for (int64_t block = 0; block < args.queries; block += at.queries) {
    head.read_rows(args.q, block, args.queries, at.queries, q);
    head.multiply_by_keys(block, q, scratch + at.keys_down, scores);
    float share[kBlockQueries];
    for (int64_t r = 0; r < at.queries; ++r) {
      const RowStatistics row =
          head.softmax_row(block + r, head.tile_columns(block + r - r % kTileRows), scores + r * at.stride);
      share[r] = head.allowed(block + r) > 0 ? 1.0f / row.total : 0.0f;
      if (args.saved.data != nullptr && args.saved.cols != 0 && block + r < args.queries)
        *head.statistics(block + r) = row;
    }
    head.multiply_over_keys(block, scores, scratch + at.values, context);
    for (int64_t r = 0; r < smaller(at.queries, args.queries - block); ++r) {
      head.write_row(args.out, block + r, context + r * at.width, broadcast(share[r]));
    }
  }
}

void backward(const AttentionGradient& gradient, int64_t sample, int64_t index, float* scratch) {
  const Attention& args = gradient.forward;
  const Head head(args, sample, index, true);
  const Layout& at = head.layout;
  float* q = scratch + at.q;
  float* grad_out = scratch + at.grad_out;
  float* scores = scratch + at.scores;
  float* slopes = scratch + at.products;
  float* grad_q = scratch + at.context;
  head.read_down(args.v, scratch + at.key_rows, scratch + at.values_down);
  head.read_down(args.k, scratch + at.key_rows, scratch + at.keys_down);
  for (int64_t i = 0; i < at.keys * at.width; i += kWidth) {
    store(scratch + at.grad_keys + i, zero());
    store(scratch + at.grad_values + i, zero());
  }
  for (int64_t block = 0; block < args.queries; block += at.queries) {
    head.read_rows(args.q, block, args.queries, at.queries, q);
    head.read_rows(gradient.grad_out, block, args.queries, at.queries, grad_out);
    head.multiply_by_keys(block, q, scratch + at.keys_down, scores);
    head.multiply_by_keys(block, grad_out, scratch + at.values_down, slopes);
    for (int64_t r = 0; r < at.queries; ++r) {
      head.gradient_row(block + r, head.tile_columns(block + r - r % kTileRows), scores + r * at.stride,
                        slopes + r * at.stride);
    }
    head.multiply_over_keys(block, slopes, scratch + at.key_rows, grad_q);
    for (int64_t r = 0; r < smaller(at.queries, args.queries - block); ++r) {
      head.write_row(gradient.grad_q, block + r, grad_q + r * at.width, broadcast(1.0f));
    }
    head.add_over_queries(block, scores, grad_out, scratch + at.grad_values);
    head.add_over_queries(block, slopes, q, scratch + at.grad_keys);
  }
  for (int64_t j = 0; j < args.keys; ++j) {
    head.write_row(gradient.grad_k, j, scratch + at.grad_keys + j * at.width, broadcast(1.0f));
    head.write_row(gradient.grad_v, j, scratch + at.grad_values + j * at.width, broadcast(1.0f));
  }
}

std::size_t scratch_floats(const Attention& shape, bool backward) {
  return static_cast<std::size_t>(Layout(shape, backward).floats);
}

}  // namespace

extern const AttentionOps kAttentionOps = {scratch_floats, forward, backward};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
