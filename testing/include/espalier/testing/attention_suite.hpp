#pragma once

#include "espalier/testing/attention_oracle.hpp"
#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

/// Where an operand of attention lies inside a matrix.
struct Field {
  Operand* memory;
  std::int64_t first, batch, position, head;

  AttentionOperand operand() const { return {memory->view().at(0, first), batch, position, head}; }

  /// Visits (row, column) of every element in the oracle's order.
  template <class Visit>
  void each(const Attention& shape, std::int64_t positions, Visit&& visit) const {
    const std::int64_t stride = memory->view().row_stride;
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t s = 0; s < positions; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          const std::int64_t at = first + b * batch + s * position + h * head;
          for (std::int64_t d = 0; d < shape.head_dim; ++d) visit((at + d) / stride, (at + d) % stride);
        }
      }
    }
  }
  std::vector<double> dense(const Attention& shape, std::int64_t positions) const {
    std::vector<double> values;
    each(shape, positions, [&](std::int64_t row, std::int64_t col) { values.push_back((*memory)(row, col)); });
    return values;
  }
};

class AttentionSuite : public KernelSuite {
 protected:
  /// How one problem is laid out: as training has it (q, k, v interleaved a head) or as decoding has it (a cache of
  /// heads).
  struct Problem {
    std::int64_t batch = 1, heads = 1, head_dim = 8, queries = 1, first_query = 0, keys = 1;
    bool slopes = true;
    std::vector<std::int32_t> key_lengths = {};
    Dropout dropout = {};
    Placement placement = {};
  };

  class Run {
   public:
    Run(AttentionSuite& suite, const Problem& p)
        : suite_(suite),
          interleaved_(p.first_query == 0 && p.queries == p.keys),
          capacity_(interleaved_ ? p.keys : p.keys + 3),
          qkv_(make(p, interleaved_ ? p.batch * p.keys : 0, 3 * p.heads * p.head_dim)),
          q_(make(p, interleaved_ ? 0 : p.batch * p.queries, p.heads * p.head_dim)),
          k_(make(p, interleaved_ ? 0 : p.batch * p.heads * capacity_, p.head_dim)),
          v_(make(p, interleaved_ ? 0 : p.batch * p.heads * capacity_, p.head_dim)),
          out_(make(p, p.batch * p.queries, p.heads * p.head_dim)),
          grad_out_(make(p, p.batch * p.queries, p.heads * p.head_dim)),
          grad_(make(p, interleaved_ ? p.batch * p.keys : 0, 3 * p.heads * p.head_dim)),
          slopes_(suite.f32(1, p.heads)),
          lengths_(*suite.backend_, DType::i32, 1, p.batch) {
      Attention& shape = oracle.shape;
      shape.dtype = suite.dtype();
      shape.batch = p.batch;
      shape.heads = p.heads;
      shape.head_dim = p.head_dim;
      shape.queries = p.queries;
      shape.first_query = p.first_query;
      shape.keys = p.keys;
      shape.dropout = p.dropout;
      shape.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
      oracle.key_lengths = p.key_lengths;
      if (p.slopes) {
        oracle.slopes.resize(static_cast<std::size_t>(p.heads));
        alibi_slopes(p.heads, oracle.slopes.data());
        slopes_.set(std::vector<double>(oracle.slopes.begin(), oracle.slopes.end()));
      }
      if (!p.key_lengths.empty()) lengths_.set(std::vector<double>(p.key_lengths.begin(), p.key_lengths.end()));
      for (Operand* operand : {&qkv_, &q_, &k_, &v_, &grad_out_}) operand->random(++seed_);
    }

    Attention args() {
      Attention a = oracle.shape;
      a.q = q().operand();
      a.k = k().operand();
      a.v = v().operand();
      a.out = row_major(out_).operand();
      a.slopes = oracle.slopes.empty() ? nullptr : slopes_.view().as<float>();
      a.key_lengths = oracle.key_lengths.empty() ? nullptr : lengths_.view().as<std::int32_t>();
      return a;
    }

    /// Runs provider and oracle; backward only for the interleaved layout.
    void forward() { run(false); }
    void forward_and_backward() { run(true); }

    std::vector<double> dense(const Field& field, bool of_keys) const {
      return field.dense(oracle.shape, of_keys ? oracle.shape.keys : oracle.shape.queries);
    }
    void set(const Field& field, bool of_keys, const std::vector<double>& values) {
      std::vector<double> all = field.memory->values();
      std::size_t next = 0;
      field.each(oracle.shape, of_keys ? oracle.shape.keys : oracle.shape.queries, [&](auto row, auto col) {
        all[static_cast<std::size_t>(row * field.memory->view().cols + col)] = values[next++];
      });
      field.memory->set(all);
    }

    void set_slopes(const std::vector<double>& slopes) {
      slopes_.set(slopes);
      oracle.slopes.assign(slopes.begin(), slopes.end());
    }

    Field q() { return interleaved_ ? part(qkv_, 0) : row_major(q_); }
    Field k() { return interleaved_ ? part(qkv_, 1) : cache(k_); }
    Field v() { return interleaved_ ? part(qkv_, 2) : cache(v_); }

    AttentionOracle oracle;
    std::vector<double> out, grad_q, grad_k, grad_v;

   private:
    Operand make(const Problem& p, std::int64_t rows, std::int64_t cols) {
      return suite_.working(std::max<std::int64_t>(rows, 1), cols, p.placement);
    }
    Field row_major(Operand& m) {
      const std::int64_t stride = m.view().row_stride;
      return {&m, 0, oracle.shape.queries * stride, stride, oracle.shape.head_dim};
    }
    Field part(Operand& m, std::int64_t which) {
      const std::int64_t stride = m.view().row_stride;
      const std::int64_t dim = oracle.shape.head_dim;
      return {&m, which * dim, oracle.shape.keys * stride, stride, 3 * dim};
    }
    Field cache(Operand& m) {
      const std::int64_t stride = m.view().row_stride;
      return {&m, 0, oracle.shape.heads * capacity_ * stride, stride, capacity_ * stride};
    }

    void run(bool backward) {
      AttentionKernels& kernels = *suite_.kernels_.attention;
      AttentionGradient args{this->args(), row_major(grad_out_).operand(), part(grad_, 0).operand(),
                             part(grad_, 1).operand(), part(grad_, 2).operand()};
      const Reason reason = kernels.supports(args.forward);
      ASSERT_FALSE(reason.has_value()) << *reason;
      Operand saved(*suite_.backend_, DType::u8, 1,
                    std::max<std::int64_t>(1, static_cast<std::int64_t>(kernels.saved_bytes(args.forward))));
      if (backward) args.forward.saved = saved;
      oracle.q = dense(q(), false);
      oracle.k = dense(k(), true);
      oracle.v = dense(v(), true);
      oracle.grad_out = dense(row_major(grad_out_), false);
      kernels.forward(args.forward, suite_.stream());
      out_.read();
      saved.read();
      out = dense(row_major(out_), false);
      if (backward) {
        ASSERT_TRUE(interleaved_);
        kernels.backward(args, suite_.stream());
        grad_.read();
        grad_q = dense(part(grad_, 0), false);
        grad_k = dense(part(grad_, 1), true);
        grad_v = dense(part(grad_, 2), true);
        oracle.forward_and_backward();
      } else {
        oracle.forward();
      }
    }

    AttentionSuite& suite_;
    bool interleaved_;
    std::int64_t capacity_;
    Operand qkv_, q_, k_, v_, out_, grad_out_, grad_, slopes_, lengths_;
    std::uint32_t seed_ = 0;
  };

  void check(const Problem& problem) {
    SCOPED_TRACE("queries " + std::to_string(problem.first_query) + " + " + std::to_string(problem.queries) +
                 ", keys " + std::to_string(problem.keys) + ", head size " + std::to_string(problem.head_dim));
    Run run(*this, problem);
    const bool training = problem.first_query == 0 && problem.queries == problem.keys;
    training ? run.forward_and_backward() : run.forward();
    expect_near_one("out", run.out, run.oracle.out);
    if (!training) return;
    expect_near_one("grad_q", run.grad_q, run.oracle.grad_q);
    expect_near_one("grad_k", run.grad_k, run.oracle.grad_k);
    expect_near_one("grad_v", run.grad_v, run.oracle.grad_v);
  }
};

TEST_P(AttentionSuite, AllLengthsTo130) {  // K07
  for (std::int64_t n = 1; n <= 130; ++n) check({.batch = n % 2 + 1, .heads = 3, .queries = n, .keys = n});
}

TEST_P(AttentionSuite, HeadSizesAndMisalignedOperands) {
  for (const std::int64_t head_dim : {1, 3, 16, 17, 64, 80, 128, 130}) {
    for (const Placement placement : kPlacements) {
      check({.batch = 2, .heads = 2, .head_dim = head_dim, .queries = 33, .keys = 33, .placement = placement});
    }
  }
}

TEST_P(AttentionSuite, WithoutSlopes) { check({.heads = 2, .queries = 65, .keys = 65, .slopes = false}); }

TEST_P(AttentionSuite, LongerThanAnyTable) {  // K09
  for (const std::int64_t n : {2048, 2049, 4096, 8192}) {
    check({.heads = 2, .head_dim = 4, .queries = 3, .first_query = n - 3, .keys = n});
  }
}

TEST_P(AttentionSuite, DecodingReadsACache) {
  for (const std::int64_t first : {1, 7, 64, 129}) {
    for (const std::int64_t queries : {1, 2, 33}) {
      check(
          {.batch = 2, .heads = 3, .head_dim = 16, .queries = queries, .first_query = first, .keys = first + queries});
    }
  }
  // Keys behind the last query do not count.
  check({.heads = 2, .queries = 3, .first_query = 4, .keys = 40});
}

TEST_P(AttentionSuite, RaggedBatches) {
  check({.batch = 3, .heads = 2, .queries = 40, .keys = 40, .key_lengths = {40, 1, 17}});
  check({.batch = 3, .heads = 2, .queries = 2, .first_query = 63, .keys = 65, .key_lengths = {65, 64, 3}});
}

TEST_P(AttentionSuite, DropoutFollowsItsCounters) {
  Dropout dropout{.p = 0.25f, .key = make_key(7, RandomUse::dropout, 3), .first_sample = 5, .first_head = 4};
  check({.batch = 2, .heads = 2, .queries = 37, .keys = 37, .dropout = dropout});
  dropout.first_sample = (std::int64_t{3} << 32) + 1;
  check({.batch = 1, .heads = 2, .queries = 5, .first_query = 9, .keys = 14, .dropout = dropout});
}

TEST_P(AttentionSuite, FullyMaskedRowsGiveZeros) {  // K12
  Run run(*this, {.batch = 2, .heads = 2, .queries = 5, .keys = 5, .key_lengths = {0, 5}});
  run.forward_and_backward();
  const auto half = static_cast<std::ptrdiff_t>(run.out.size() / 2);
  for (const auto* values : {&run.out, &run.grad_q, &run.grad_k, &run.grad_v}) {
    EXPECT_EQ(std::vector<double>(values->begin(), values->begin() + half),
              std::vector<double>(run.out.size() / 2, 0.0));
  }
  expect_near_one("out", run.out, run.oracle.out);
  expect_near_one("grad_v", run.grad_v, run.oracle.grad_v);
}

TEST_P(AttentionSuite, NanStaysNan) {  // K12
  Run run(*this, {.queries = 9, .keys = 9});
  std::vector<double> q = run.dense(run.q(), false);
  q[4 * 8] = std::numeric_limits<double>::quiet_NaN();
  run.set(run.q(), false, q);
  run.forward_and_backward();
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    EXPECT_EQ(std::isnan(run.out[i]), i / 8 == 4) << "row " << i / 8;
    EXPECT_EQ(std::isnan(run.grad_q[i]), i / 8 == 4) << "row " << i / 8;
    if (i / 8 <= 4) {
      EXPECT_TRUE(std::isnan(run.grad_k[i])) << "key " << i / 8;
    }
  }
}

TEST_P(AttentionSuite, HugeScoresAndMaskedKeys) {  // K10
  // Score of query i and key j: 1,000 for allowed keys but 60,000 for later ones; the masked keys' values must not come
  // through.
  for (const double allowed : {1000.0, 60000.0}) {
    Run run(*this, {.heads = 1, .head_dim = 2, .queries = 4, .keys = 4});
    run.oracle.shape.scale = 1.0f;
    run.set(run.q(), false, {200, 0, 200, 0, 200, 0, 200, 0});
    run.set(run.k(), true, {allowed / 200, 0, allowed / 200, 0, 300, 0, 300, 0});
    run.set(run.v(), true, {1, 0, 1, 0, 1, 1, 1, 1});
    run.forward_and_backward();
    expect_near_one("out", run.out, run.oracle.out);
    for (const double x : run.out) EXPECT_TRUE(std::isfinite(x)) << x;
    for (const double x : run.grad_q) EXPECT_TRUE(std::isfinite(x)) << x;
    EXPECT_EQ(run.out[1], 0.0) << "a masked probability is not 0";
    EXPECT_EQ(run.out[3], 0.0) << "a masked probability is not 0";
  }
}

TEST_P(AttentionSuite, SlopesStayExactAtLongDistance) {  // K06: 16-bit positions or slopes would merge neighbours
  for (const std::int64_t length : {2048, 8192}) {
    const std::int64_t query = length - 1;
    Run run(*this, {.heads = 1, .head_dim = 8, .queries = 1, .first_query = query, .keys = length});
    run.set_slopes({0.5});
    run.set(run.q(), false, std::vector<double>(8, 0.0));
    std::vector<double> v(static_cast<std::size_t>(length * 8), 0.0);
    for (std::size_t d = 0; d < 8; ++d) v[static_cast<std::size_t>(length - 8) * 8 + d * 8 + d] = 1;
    run.set(run.v(), true, v);
    run.forward();
    expect_near_one("probabilities of the last eight keys", run.out, run.oracle.out);
    for (std::size_t d = 1; d < 8; ++d) {
      EXPECT_GT(run.out[d], run.out[d - 1]);
      EXPECT_NEAR(std::log(run.out[d] / run.out[d - 1]), 0.5, 2 * GetParam().tolerance);
    }
  }
}

TEST_P(AttentionSuite, BackwardIsTheDerivativeOfForward) {
  Dropout dropout{.p = 0.1f, .key = make_key(1, RandomUse::dropout, 1)};
  Run run(*this,
          {.batch = 2, .heads = 2, .head_dim = 3, .queries = 6, .keys = 6, .key_lengths = {6, 4}, .dropout = dropout});
  run.forward_and_backward();
  const auto quotients = [&](std::vector<double>& x) {
    std::vector<double> all;
    for (double& element : x) {
      const double middle = element;
      element = middle + 1e-5;
      const double up = run.oracle.objective();
      element = middle - 1e-5;
      all.push_back((up - run.oracle.objective()) / 2e-5);
      element = middle;
    }
    return all;
  };
  expect_near_one("grad_q", run.grad_q, quotients(run.oracle.q));
  expect_near_one("grad_k", run.grad_k, quotients(run.oracle.k));
  expect_near_one("grad_v", run.grad_v, quotients(run.oracle.v));
}

TEST_P(AttentionSuite, SameBitsWithAnyThreads) {
  expect_same_with_any_threads([this] {
    Run run(*this, {.batch = 2, .heads = 3, .head_dim = 16, .queries = 70, .keys = 70});
    run.forward_and_backward();
    std::vector<double> all = run.out;
    for (const auto* values : {&run.grad_q, &run.grad_k, &run.grad_v})
      all.insert(all.end(), values->begin(), values->end());
    return all;
  });
}

}  // namespace espalier::testing
