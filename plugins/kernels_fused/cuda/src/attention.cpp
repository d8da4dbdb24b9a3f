#include "attention.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "espalier/error.hpp"
#include "scratch.hpp"
#include "softmax.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr std::size_t kBorder = 256;  ///< parts of the scratch start at multiples of it

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

constexpr std::size_t padded(std::size_t bytes) { return (bytes + kBorder - 1) / kBorder * kBorder; }

std::int64_t ceil_to(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Keys that some query of [0, queries) may see, key lengths left aside.
std::int64_t visible(const Attention& shape, std::int64_t queries) {
  return std::min(shape.keys, shape.first_query + queries);
}

/// How a problem is cut. Only the shape decides.
struct Cut {
  std::int64_t rows = 1;   ///< queries of a block
  std::int64_t items = 1;  ///< (sample, head) pairs of a product
  std::int64_t span = 1;   ///< pairs that can be reached by one stride: heads, or all of them
  bool direct = false;     ///< backward writes the gradients of k and v without sums in between

  std::int64_t matrix = 0;  ///< elements of the largest block of scores of one item

  Cut(const Attention& shape, const CudaAttention::Limits& limits, bool one_stride) {
    const std::int64_t keys = visible(shape, shape.queries);
    const std::int64_t row = ceil_to(keys, kScorePadding);
    rows = std::clamp<std::int64_t>(limits.scores / row, 1, std::min(shape.queries, limits.query_block));
    span = one_stride ? shape.batch * shape.heads : shape.heads;
    items = std::clamp<std::int64_t>(limits.scores / (rows * row), 1, span);
    direct = rows >= shape.queries && keys == shape.keys;
    matrix = rows * row;
  }

  std::size_t scores_bytes() const { return padded(static_cast<std::size_t>(items * matrix) * sizeof(float)); }
  std::size_t working_bytes(DType dtype) const {
    return padded(static_cast<std::size_t>(items * matrix) * size_of(dtype));
  }
  std::size_t sums_bytes(const Attention& shape) const {
    return direct ? 0 : padded(static_cast<std::size_t>(items * shape.keys * shape.head_dim) * sizeof(float));
  }
  std::size_t forward_bytes(const Attention& shape) const { return scores_bytes() + working_bytes(shape.dtype); }
  std::size_t backward_bytes(const Attention& shape) const {
    return 2 * (scores_bytes() + working_bytes(shape.dtype) + sums_bytes(shape));
  }
};

/// Whether all (sample, head) pairs lie one head stride apart: one product then takes them all.
bool one_stride(const Attention& shape, std::initializer_list<AttentionOperand> operands) {
  return shape.batch == 1 || std::all_of(operands.begin(), operands.end(), [&](const AttentionOperand& operand) {
           return operand.batch_stride == shape.heads * operand.head_stride;
         });
}

/// Cuts scratch into parts.
class Parts {
 public:
  explicit Parts(std::byte* memory) : next_(memory) {}
  void* take(std::size_t bytes) { return std::exchange(next_, next_ + bytes); }

 private:
  std::byte* next_;
};

/// One block of scores, with the matrices around it.
class Problem {
 public:
  Problem(const Attention& shape, BatchedGemm& gemm, Stream& stream) : shape_(shape), gemm_(gemm), stream_(stream) {}

  ScoreBlock block;

  /// Rows of the block out of an operand with a row per query.
  View queries(const AttentionOperand& operand) const {
    return matrix(operand, block.first_row, block.rows, shape_.dtype);
  }
  /// The keys that the block sees.
  View keys(const AttentionOperand& operand) const { return matrix(operand, 0, block.keys, shape_.dtype); }
  View scores(void* data, DType dtype) const { return {data, block.rows, block.keys, block.row_stride, dtype}; }
  std::int64_t scores_stride() const { return block.rows * block.row_stride; }

  void multiply(BatchedProduct product) const {
    product.count = block.items;
    gemm_.multiply(product, stream_);
  }

  /// dst = a · bᵀ over channels, FP32 scores.
  void make_scores(const AttentionOperand& a, const AttentionOperand& b, float* dst) const {
    BatchedProduct product{queries(a), keys(b), scores(dst, DType::f32)};
    product.transpose_b = true;
    product.a_stride = a.head_stride;
    product.b_stride = b.head_stride;
    product.dst_stride = scores_stride();
    multiply(product);
  }

  /// dst = weights · b over keys.
  void over_keys(void* weights, const AttentionOperand& b, const AttentionOperand& dst) const {
    BatchedProduct product{scores(weights, shape_.dtype), keys(b), queries(dst)};
    product.a_stride = scores_stride();
    product.b_stride = b.head_stride;
    product.dst_stride = dst.head_stride;
    multiply(product);
  }

  /// dst (+)= weightsᵀ · b over queries.
  void over_queries(void* weights, const AttentionOperand& b, const View& dst, std::int64_t dst_stride,
                    bool accumulate) const {
    BatchedProduct product{scores(weights, shape_.dtype), queries(b), dst};
    product.transpose_a = true;
    product.beta = accumulate ? 1.0f : 0.0f;
    product.a_stride = scores_stride();
    product.b_stride = b.head_stride;
    product.dst_stride = dst_stride;
    multiply(product);
  }

 private:
  View matrix(const AttentionOperand& operand, std::int64_t first, std::int64_t rows, DType dtype) const {
    const std::int64_t at = block.first_item / shape_.heads * operand.batch_stride + first * operand.position_stride +
                            block.first_item % shape_.heads * operand.head_stride;
    auto* data = static_cast<std::byte*>(operand.data) + at * static_cast<std::int64_t>(size_of(dtype));
    return {data, rows, shape_.head_dim, operand.position_stride, dtype};
  }

  const Attention& shape_;
  BatchedGemm& gemm_;
  Stream& stream_;
};

/// Calls body(first item, items) for groups of items that one product can reach.
template <class Body>
void for_items(const Attention& shape, const Cut& cut, const Body& body) {
  for (std::int64_t base = 0; base < shape.batch * shape.heads; base += cut.span) {
    for (std::int64_t item = 0; item < cut.span; item += cut.items) {
      body(base + item, std::min(cut.items, cut.span - item));
    }
  }
}

ScoreBlock block_of(const Attention& shape, const Cut& cut, std::int64_t first_item, std::int64_t items,
                    std::int64_t first_row) {
  ScoreBlock block{first_item, items, first_row, std::min(cut.rows, shape.queries - first_row)};
  block.keys = visible(shape, first_row + block.rows);
  block.row_stride = ceil_to(block.keys, kScorePadding);
  return block;
}

void check(const Attention& args) {
  ESPALIER_ASSERT(args.first_query >= 0 && args.keys >= args.first_query + args.queries);
}

bool nothing(const Attention& args) { return args.batch * args.heads * args.queries * args.head_dim == 0; }

/// Backward of one group of items. The last block of queries comes first: it sees every key, so it starts the sums.
struct GroupGradient {
  const AttentionGradient& args;
  const Cut& cut;
  float* scores;
  float* products;
  void* probabilities;
  void* slopes;
  float* sums_k;
  float* sums_v;

  void run(Problem& problem, std::int64_t first_item, std::int64_t items, Stream& stream) const {
    const Attention& shape = args.forward;
    const std::int64_t blocks = (shape.queries + cut.rows - 1) / cut.rows;
    for (std::int64_t i = blocks - 1; i >= 0; --i) {
      problem.block = block_of(shape, cut, first_item, items, i * cut.rows);
      problem.make_scores(shape.q, shape.k, scores);
      problem.make_scores(args.grad_out, shape.v, products);
      softmax_backward(shape, problem.block, scores, products, probabilities, slopes, stream);
      problem.over_keys(slopes, shape.k, args.grad_q);
      add_keys(problem, probabilities, args.grad_out, args.grad_v, sums_v, i + 1 < blocks);
      add_keys(problem, slopes, shape.q, args.grad_k, sums_k, i + 1 < blocks);
    }
    if (cut.direct) return;
    const std::int64_t filled = visible(shape, shape.queries);
    store_key_gradient(shape, first_item, items, filled, sums_k, args.grad_k, stream);
    store_key_gradient(shape, first_item, items, filled, sums_v, args.grad_v, stream);
  }

  void add_keys(const Problem& problem, void* weights, const AttentionOperand& by, const AttentionOperand& to,
                float* sums, bool accumulate) const {
    const Attention& shape = args.forward;
    if (cut.direct) {
      problem.over_queries(weights, by, problem.keys(to), to.head_stride, false);
    } else {
      const View dst = View::matrix(sums, problem.block.keys, shape.head_dim, DType::f32);
      problem.over_queries(weights, by, dst, shape.keys * shape.head_dim, accumulate);
    }
  }
};

}  // namespace

Reason CudaAttention::supports(const Attention& shape) const {
  if (!is_float(shape.dtype)) return "kernels_fused_cuda: no attention in " + std::string(name_of(shape.dtype));
  return {};
}

std::size_t CudaAttention::saved_bytes(const Attention& shape) const {
  return static_cast<std::size_t>(shape.batch * shape.heads * shape.queries) * sizeof(RowStatistics);
}

std::size_t CudaAttention::workspace(const Attention& shape) const {
  if (nothing(shape)) return 0;
  return std::max(Cut(shape, limits_, false).backward_bytes(shape), Cut(shape, limits_, true).backward_bytes(shape));
}

void CudaAttention::forward(const Attention& args, Stream& stream) {
  check(args);
  ESPALIER_ASSERT(args.saved.empty() || args.saved.bytes() >= saved_bytes(args));
  if (nothing(args)) return;
  const Cut cut(args, limits_, one_stride(args, {args.q, args.k, args.v, args.out}));
  Parts parts(scratch_.bytes(cut.forward_bytes(args), stream));
  auto* scores = static_cast<float*>(parts.take(cut.scores_bytes()));
  void* probabilities = parts.take(cut.working_bytes(args.dtype));
  Problem problem(args, gemm_, stream);
  for_items(args, cut, [&](std::int64_t first_item, std::int64_t items) {
    for (std::int64_t row = 0; row < args.queries; row += cut.rows) {
      problem.block = block_of(args, cut, first_item, items, row);
      problem.make_scores(args.q, args.k, scores);
      softmax_forward(args, problem.block, scores, probabilities, stream);
      problem.over_keys(probabilities, args.v, args.out);
    }
  });
}

void CudaAttention::backward(const AttentionGradient& args, Stream& stream) {
  const Attention& shape = args.forward;
  check(shape);
  if (nothing(shape)) return;
  ESPALIER_ASSERT(shape.saved.bytes() >= saved_bytes(shape));
  const bool together =
      one_stride(shape, {shape.q, shape.k, shape.v, args.grad_out, args.grad_q, args.grad_k, args.grad_v});
  const Cut cut(shape, limits_, together);
  Parts parts(scratch_.bytes(cut.backward_bytes(shape), stream));
  auto* scores = static_cast<float*>(parts.take(cut.scores_bytes()));
  auto* products = static_cast<float*>(parts.take(cut.scores_bytes()));
  void* probabilities = parts.take(cut.working_bytes(shape.dtype));
  void* slopes = parts.take(cut.working_bytes(shape.dtype));
  auto* sums_k = static_cast<float*>(parts.take(cut.sums_bytes(shape)));
  auto* sums_v = static_cast<float*>(parts.take(cut.sums_bytes(shape)));
  const GroupGradient group{args, cut, scores, products, probabilities, slopes, sums_k, sums_v};
  Problem problem(shape, gemm_, stream);
  for_items(shape, cut,
            [&](std::int64_t first_item, std::int64_t items) { group.run(problem, first_item, items, stream); });
}

}  // namespace espalier::kernels_fused::cuda
