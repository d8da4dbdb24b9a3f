// Element-wise kernels and the embedding over sizes, placements and schedules, against the reference provider.
#include <algorithm>
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

class ElementwiseSchedules : public ScheduleTest {};

TEST_P(ElementwiseSchedules, Gelu) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    expect_reference([&](Backend& backend) {
      Operand src(backend, dtype(), rows, cols, placement), bias(backend, dtype(), 1, cols, placement);
      Operand dst(backend, dtype(), rows, cols, placement), grad(backend, dtype(), rows, cols, placement);
      src.random(1, -4, 4);
      bias.random(2);
      grad.random(3);
      ElementwiseKernels& kernels = *backend.kernels().elementwise;
      kernels.bias_gelu(src, bias, dst, stream(backend));
      std::vector<double> results = dst.read();
      kernels.bias_gelu(src, {}, dst, stream(backend));
      append(results, dst);
      kernels.bias_gelu_backward(grad, src, bias, grad, stream(backend));
      return append(results, grad);
    });
  });
}

TEST_P(ElementwiseSchedules, ResidualAddsWithAndWithoutDropout) {
  const Dropout dropped{
      .p = 0.3f, .key = make_key(3, RandomUse::dropout, 2), .first_sample = 7, .first_token = 5, .seq = 2};
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    for (const Dropout& dropout : {Dropout{}, dropped}) {
      expect_reference([&](Backend& backend) {
        Operand src(backend, dtype(), rows, cols, placement), bias(backend, dtype(), 1, cols, placement);
        Operand residual(backend, dtype(), rows, cols, placement), grad(backend, dtype(), rows, cols, placement);
        Operand grad_src(backend, dtype(), rows, cols, placement);
        src.random(1);
        bias.random(2);
        residual.random(3);
        grad.random(4);
        ElementwiseKernels& kernels = *backend.kernels().elementwise;
        kernels.bias_dropout_add(src, bias, residual, dropout, residual, stream(backend));
        kernels.dropout_backward(grad, dropout, grad_src, stream(backend));
        std::vector<double> results = residual.read();
        return append(results, grad_src);
      });
    }
  });
}

TEST_P(ElementwiseSchedules, DropoutByTokenNumbers) {  // the kernel divides by multiplying
  for (const std::int64_t seq : {1, 2, 3, 7, 2048, 2049, 2000000011}) {
    for (const std::int64_t first_token : {std::int64_t{0}, seq - 1, (std::int64_t{3} << 40) + 5}) {
      SCOPED_TRACE(std::to_string(seq) + " tokens a sample, from " + std::to_string(first_token));
      const Dropout dropout{.p = 0.5f, .key = {1, 2}, .first_sample = 9, .first_token = first_token, .seq = seq};
      expect_reference([&](Backend& backend) {
        Operand grad(backend, dtype(), 130, 4);
        grad.random(4);
        backend.kernels().elementwise->dropout_backward(grad, dropout, grad, stream(backend));
        return grad.read();
      });
    }
  }
}

TEST_P(ElementwiseSchedules, AddAndScale) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    for (const DType other : {DType::f32, DType::bf16, DType::f16}) {
      expect_reference(
          [&](Backend& backend) {
            Operand a(backend, dtype(), rows, cols, placement), b(backend, other, rows, cols, placement);
            Operand sum(backend, other, rows, cols, placement), scaled(backend, other, rows, cols, placement);
            a.random(1);
            b.random(2);
            ElementwiseKernels& kernels = *backend.kernels().elementwise;
            kernels.add(a, b, sum, stream(backend));
            kernels.scale(a, 0.3f, scaled, stream(backend));
            std::vector<double> results = sum.read();
            return append(results, scaled);
          },
          Agreement::bits);
    }
  });
}

/// Ids of `tokens` tokens for a table of `rows` rows that begins at 10: neighbours and strangers, and one in many.
std::vector<double> make_ids(std::int64_t tokens, std::int64_t rows) {
  std::vector<double> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double drawn = std::floor(random_value(6, t, -2, static_cast<double>(rows) + 2));
    ids.push_back(10 + (t % 3 == 0 ? 1 : drawn));
  }
  return ids;
}

TEST_P(ElementwiseSchedules, EmbeddingAndItsGradient) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    expect_reference(
        [&](Backend& backend) {
          Operand ids = i32(backend, make_ids(rows * 7, 9));
          Operand table(backend, dtype(), 9, cols, placement), dst(backend, dtype(), rows * 7, cols, placement);
          Operand grad(backend, dtype(), rows * 7, cols, placement),
              grad_table(backend, DType::f32, 9, cols, placement);
          table.random(1);
          grad.random(2);
          grad_table.random(3);
          ElementwiseKernels& kernels = *backend.kernels().elementwise;
          kernels.embedding(ids, table, 10, dst, stream(backend));
          kernels.embedding_backward(ids, grad, 10, grad_table, stream(backend));
          std::vector<double> results = dst.read();
          return append(results, grad_table);
        },
        Agreement::bits);
  });
}

TEST_P(ElementwiseSchedules, GradientOfManyTokens) {
  // More tokens than threads of a block, in few and in many rows of the table: ascending order shows in the last bits.
  for (const std::int64_t vocabulary : {2, 700}) {
    expect_reference(
        [&](Backend& backend) {
          Operand ids = i32(backend, make_ids(1000, vocabulary)), grad(backend, dtype(), 1000, 5);
          Operand grad_table(backend, DType::f32, vocabulary, 5);
          grad.random(2);
          backend.kernels().elementwise->embedding_backward(ids, grad, 10, grad_table, stream(backend));
          return grad_table.read();
        },
        Agreement::bits);
  }
}

TEST_P(ElementwiseSchedules, NothingToDo) {
  expect_reference([&](Backend& backend) {
    Operand matrix(backend, dtype(), 0, 5), table(backend, dtype(), 3, 5), grad_table(backend, DType::f32, 3, 5);
    Operand ids = i32(backend, {});
    ElementwiseKernels& kernels = *backend.kernels().elementwise;
    kernels.bias_gelu(matrix, {}, matrix, stream(backend));
    kernels.bias_gelu_backward(matrix, matrix, {}, matrix, stream(backend));
    kernels.bias_dropout_add(matrix, {}, matrix, {}, matrix, stream(backend));
    kernels.dropout_backward(matrix, Dropout{.p = 0.5f}, matrix, stream(backend));
    kernels.embedding(ids, table, 0, matrix, stream(backend));
    kernels.embedding_backward(ids, matrix, 0, grad_table, stream(backend));
    kernels.add(matrix, matrix, matrix, stream(backend));
    kernels.scale(matrix, 2, matrix, stream(backend));
    return grad_table.read();
  });
}

}  // namespace

INSTANTIATE_SCHEDULES(ElementwiseSchedules);

}  // namespace espalier::testing
