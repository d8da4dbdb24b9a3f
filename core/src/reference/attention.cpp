#include <cmath>
#include <limits>
#include <vector>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

/// What a row of probabilities is remade from. The two are kept apart, since a log-sum-exp near 1,000 has lost the
/// digits that the probabilities need.
struct RowStatistics {
  float largest;
  float total;
};

template <class T>
T* row_of(const AttentionOperand& operand, std::int64_t batch, std::int64_t position, std::int64_t head) {
  return static_cast<T*>(operand.data) + batch * operand.batch_stride + position * operand.position_stride +
         head * operand.head_stride;
}

template <class T>
float dot(const T* a, const T* b, std::int64_t n) {
  return sum(n, [&](std::int64_t i) { return to_float(a[i]) * to_float(b[i]); });
}

/// One head of one sample.
template <class T>
struct Head {
  const Attention& args;
  std::int64_t batch;
  std::int64_t head;

  const T* q(std::int64_t i) const { return row_of<T>(args.q, batch, i, head); }
  const T* k(std::int64_t j) const { return row_of<T>(args.k, batch, j, head); }
  const T* v(std::int64_t j) const { return row_of<T>(args.v, batch, j, head); }

  /// Leading keys that query i may see. Counted, not guessed from the scores: a row of NaN is not an empty row.
  std::int64_t allowed(std::int64_t i) const {
    const std::int64_t length = args.key_lengths != nullptr ? args.key_lengths[batch] : args.keys;
    return std::min({args.first_query + i + 1, length, args.keys});
  }

  float score(std::int64_t i, std::int64_t j) const {
    const float slope = args.slopes != nullptr ? args.slopes[head] : 0.0f;
    return dot(q(i), k(j), args.head_dim) * args.scale + slope * static_cast<float>(j - (args.first_query + i));
  }

  /// What dropout makes of a probability: 0, or its scale.
  float mask(std::int64_t i, std::int64_t j) const {
    const Dropout& dropout = args.dropout;
    if (!dropout.active()) return 1.0f;
    return dropout.keeps_attention(batch, head, args.first_query + i, j) ? dropout.scale() : 0.0f;
  }

  RowStatistics* statistics(std::int64_t i) const {
    return args.saved.as<RowStatistics>() + (batch * args.heads + head) * args.queries + i;
  }

  /// @param scratch  [keys + head_dim]
  void forward_row(std::int64_t i, float* scratch) const {
    const std::int64_t n = allowed(i);
    float* probabilities = scratch;
    float* context = scratch + args.keys;
    std::fill_n(context, args.head_dim, 0.0f);
    RowStatistics row{-std::numeric_limits<float>::infinity(), 0.0f};
    for (std::int64_t j = 0; j < n; ++j) {
      probabilities[j] = score(i, j);
      row.largest = std::max(row.largest, probabilities[j]);
    }
    for (std::int64_t j = 0; j < n; ++j) probabilities[j] = std::exp(probabilities[j] - row.largest);
    row.total = sum(n, [&](std::int64_t j) { return probabilities[j]; });
    for (std::int64_t j = 0; j < n; ++j) {
      const float weight = probabilities[j] / row.total * mask(i, j);
      for (std::int64_t d = 0; d < args.head_dim; ++d) context[d] += weight * to_float(v(j)[d]);
    }
    T* out = row_of<T>(args.out, batch, i, head);
    for (std::int64_t d = 0; d < args.head_dim; ++d) out[d] = from_float<T>(context[d]);
    if (present(args.saved)) *statistics(i) = row;
  }

  /// Adds the row's part to grad_k and grad_v, FP32 [keys, head_dim], and writes grad_q.
  /// @param scratch  [2 keys + head_dim]
  void backward_row(const AttentionGradient& gradient, std::int64_t i, float* grad_k, float* grad_v,
                    float* scratch) const {
    const std::int64_t n = allowed(i);
    const std::int64_t width = args.head_dim;
    const T* grad_out = row_of<T>(gradient.grad_out, batch, i, head);
    const RowStatistics row = *statistics(i);
    float* probabilities = scratch;
    float* products = scratch + args.keys;
    float* grad_q = scratch + 2 * args.keys;
    for (std::int64_t j = 0; j < n; ++j) {
      const float kept = mask(i, j);
      probabilities[j] = std::exp(score(i, j) - row.largest) / row.total;
      products[j] = dot(grad_out, v(j), width) * kept;
      const float weight = probabilities[j] * kept;
      for (std::int64_t d = 0; d < width; ++d) grad_v[j * width + d] += weight * to_float(grad_out[d]);
    }
    const float mean = sum(n, [&](std::int64_t j) { return probabilities[j] * products[j]; });
    std::fill_n(grad_q, width, 0.0f);
    for (std::int64_t j = 0; j < n; ++j) {
      const float slope = probabilities[j] * (products[j] - mean) * args.scale;
      for (std::int64_t d = 0; d < width; ++d) grad_q[d] += slope * to_float(k(j)[d]);
      for (std::int64_t d = 0; d < width; ++d) grad_k[j * width + d] += slope * to_float(q(i)[d]);
    }
    T* out = row_of<T>(gradient.grad_q, batch, i, head);
    for (std::int64_t d = 0; d < width; ++d) out[d] = from_float<T>(grad_q[d]);
  }

  void store_keys(const AttentionOperand& to, const float* from) const {
    for (std::int64_t j = 0; j < args.keys; ++j) {
      T* out = row_of<T>(to, batch, j, head);
      for (std::int64_t d = 0; d < args.head_dim; ++d) out[d] = from_float<T>(from[j * args.head_dim + d]);
    }
  }
};

class ReferenceAttention final : public AttentionKernels {
 public:
  explicit ReferenceAttention(ThreadPool& pool) : pool_(pool) {}

  Reason supports(const Attention& shape) const override { return needs_float(shape.dtype); }

  std::size_t saved_bytes(const Attention& shape) const override {
    return static_cast<std::size_t>(shape.batch * shape.heads * shape.queries) * sizeof(RowStatistics);
  }

  std::size_t workspace(const Attention& shape) const override {
    return static_cast<std::size_t>(shape.batch * shape.heads * backward_floats(shape)) * sizeof(float);
  }

  void forward(const Attention& args, Stream&) override {
    check(args);
    ESPALIER_ASSERT(!present(args.saved) || args.saved.bytes() >= saved_bytes(args));
    float* const scratch = reserve(args, args.keys + args.head_dim);
    with_type(args.dtype, [&](auto type) {
      pool_.run(args.batch * args.heads, [&](std::int64_t item) {
        const Head<decltype(type)> head{args, item / args.heads, item % args.heads};
        for (std::int64_t i = 0; i < args.queries; ++i) {
          head.forward_row(i, scratch + item * (args.keys + args.head_dim));
        }
      });
    });
  }

  void backward(const AttentionGradient& gradient, Stream&) override {
    const Attention& args = gradient.forward;
    check(args);
    ESPALIER_ASSERT(args.saved.bytes() >= saved_bytes(args));
    const std::int64_t each = backward_floats(args);
    float* const scratch = reserve(args, each);
    with_type(args.dtype, [&](auto type) {
      pool_.run(args.batch * args.heads, [&](std::int64_t item) {
        const Head<decltype(type)> head{args, item / args.heads, item % args.heads};
        float* const grad_k = scratch + item * each;
        float* const grad_v = grad_k + args.keys * args.head_dim;
        std::fill_n(grad_k, 2 * args.keys * args.head_dim, 0.0f);
        for (std::int64_t i = 0; i < args.queries; ++i) {
          head.backward_row(gradient, i, grad_k, grad_v, grad_v + args.keys * args.head_dim);
        }
        head.store_keys(gradient.grad_k, grad_k);
        head.store_keys(gradient.grad_v, grad_v);
      });
    });
  }

 private:
  static void check(const Attention& args) {
    ESPALIER_ASSERT(args.first_query >= 0 && args.keys >= args.first_query + args.queries);
  }

  static std::int64_t backward_floats(const Attention& shape) {
    return 2 * shape.keys * shape.head_dim + 2 * shape.keys + shape.head_dim;
  }

  /// Room for `each` floats a head, grown on the calling thread and kept.
  float* reserve(const Attention& args, std::int64_t each) {
    const auto floats = static_cast<std::size_t>(args.batch * args.heads * each);
    if (scratch_.size() < floats) scratch_.resize(floats);
    return scratch_.data();
  }

  ThreadPool& pool_;
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool) {
  return std::make_unique<ReferenceAttention>(pool);
}

}  // namespace espalier::reference
