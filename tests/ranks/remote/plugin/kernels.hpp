// The reference backend's kernels, called when the stream gets there: each call is captured by value.
#pragma once

#include "device.hpp"
#include "espalier/backend.hpp"

namespace espalier::remote {

/// What every family needs: where to put calls, and how the host runs them.
class Caller {
 public:
  Caller(RemoteDevice& device, Backend& inner) : device_(device), inner_(inner) {}

  /// Queues `call`, which gets the host's stream, once all its operands are known to lie in device memory.
  template <class Call, class... Operands>
  void queue(const char* what, Stream& stream, Call call, const Operands&... operands) {
    (require(what, operands), ...);
    device_.queues().push(queue_of(stream), what, [this, call] {
      call(inner_.device().lane(Lane::compute));
      return Outcome::done;
    });
  }

 private:
  void require(const char* what, const void* data) const;
  void require(const char* what, const View& view) const {
    if (!view.empty()) require(what, static_cast<const void*>(view.data));
  }
  void require(const char* what, const AttentionOperand& operand) const {
    require(what, static_cast<const void*>(operand.data));
  }
  void require(const char* what, const Attention& args) const;

  RemoteDevice& device_;
  Backend& inner_;
};

class RemoteMatrix final : public MatrixKernels {
 public:
  RemoteMatrix(Caller& caller, MatrixKernels& inner) : caller_(caller), inner_(inner) {}
  Reason supports(DType working) const override { return inner_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return inner_.workspace(shape); }
  void matmul(const Matmul& args, Stream& stream) override {
    caller_.queue(
        "matmul", stream, [this, args](Stream& s) { inner_.matmul(args, s); }, args.a, args.b, args.dst, args.bias);
  }
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override {
    caller_.queue(
        "column_sum", stream, [=, this](Stream& s) { inner_.column_sum(src, dst, accumulate, s); }, src, dst);
  }

 private:
  Caller& caller_;
  MatrixKernels& inner_;
};

class RemoteAttention final : public AttentionKernels {
 public:
  RemoteAttention(Caller& caller, AttentionKernels& inner) : caller_(caller), inner_(inner) {}
  Reason supports(const Attention& shape) const override { return inner_.supports(shape); }
  std::size_t saved_bytes(const Attention& shape) const override { return inner_.saved_bytes(shape); }
  std::size_t workspace(const Attention& shape) const override { return inner_.workspace(shape); }
  void forward(const Attention& args, Stream& stream) override {
    caller_.queue(
        "attention", stream, [this, args](Stream& s) { inner_.forward(args, s); }, args);
  }
  void backward(const AttentionGradient& args, Stream& stream) override {
    caller_.queue(
        "attention_backward", stream, [this, args](Stream& s) { inner_.backward(args, s); }, args.forward,
        args.grad_out, args.grad_q, args.grad_k, args.grad_v);
  }

 private:
  Caller& caller_;
  AttentionKernels& inner_;
};

class RemoteNorm final : public NormKernels {
 public:
  RemoteNorm(Caller& caller, NormKernels& inner) : caller_(caller), inner_(inner) {}
  Reason supports(DType working, std::int64_t hidden) const override { return inner_.supports(working, hidden); }
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override {
    return inner_.workspace(tokens, hidden);
  }
  void forward(const LayerNorm& args, Stream& stream) override {
    caller_.queue(
        "norm", stream, [this, args](Stream& s) { inner_.forward(args, s); }, args.src, args.weight, args.bias,
        args.dst, args.mean, args.rstd);
  }
  void backward(const LayerNormGradient& args, Stream& stream) override {
    caller_.queue(
        "norm_backward", stream, [this, args](Stream& s) { inner_.backward(args, s); }, args.grad_dst, args.src,
        args.weight, args.mean, args.rstd, args.grad_src, args.residual, args.grad_weight, args.grad_bias);
  }

 private:
  Caller& caller_;
  NormKernels& inner_;
};

class RemoteElementwise final : public ElementwiseKernels {
 public:
  RemoteElementwise(Caller& caller, ElementwiseKernels& inner) : caller_(caller), inner_(inner) {}
  Reason supports(DType working) const override { return inner_.supports(working); }
  void bias_gelu(const View& src, const View& bias, const View& dst, Stream& stream) override {
    caller_.queue(
        "bias_gelu", stream, [=, this](Stream& s) { inner_.bias_gelu(src, bias, dst, s); }, src, bias, dst);
  }
  void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                          Stream& stream) override {
    caller_.queue(
        "bias_gelu_backward", stream,
        [=, this](Stream& s) { inner_.bias_gelu_backward(grad_dst, src, bias, grad_src, s); }, grad_dst, src, bias,
        grad_src);
  }
  void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                        const View& dst, Stream& stream) override {
    caller_.queue(
        "bias_dropout_add", stream,
        [=, this](Stream& s) { inner_.bias_dropout_add(src, bias, residual, dropout, dst, s); }, src, bias, residual,
        dst);
  }
  void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream& stream) override {
    caller_.queue(
        "dropout_backward", stream, [=, this](Stream& s) { inner_.dropout_backward(grad_dst, dropout, grad_src, s); },
        grad_dst, grad_src);
  }
  void embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream& stream) override {
    caller_.queue(
        "embedding", stream, [=, this](Stream& s) { inner_.embedding(ids, table, first_id, dst, s); }, ids, table, dst);
  }
  void embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id, const View& grad_table,
                          Stream& stream) override {
    caller_.queue(
        "embedding_backward", stream,
        [=, this](Stream& s) { inner_.embedding_backward(ids, grad_dst, first_id, grad_table, s); }, ids, grad_dst,
        grad_table);
  }
  void add(const View& a, const View& b, const View& dst, Stream& stream) override {
    caller_.queue(
        "add", stream, [=, this](Stream& s) { inner_.add(a, b, dst, s); }, a, b, dst);
  }
  void scale(const View& src, float factor, const View& dst, Stream& stream) override {
    caller_.queue(
        "scale", stream, [=, this](Stream& s) { inner_.scale(src, factor, dst, s); }, src, dst);
  }

 private:
  Caller& caller_;
  ElementwiseKernels& inner_;
};

class RemoteLoss final : public LossKernels {
 public:
  RemoteLoss(Caller& caller, LossKernels& inner) : caller_(caller), inner_(inner) {}
  Reason supports(DType working) const override { return inner_.supports(working); }
  void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) override {
    caller_.queue(
        "row_max", stream, [=, this](Stream& s) { inner_.row_max(logits, valid, row_max, s); }, logits, row_max);
  }
  void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets, std::int64_t first_id,
               const View& sum_exp, const View& target_logit, Stream& stream) override {
    caller_.queue(
        "exp_sum", stream,
        [=, this](Stream& s) { inner_.exp_sum(logits, valid, row_max, targets, first_id, sum_exp, target_logit, s); },
        logits, row_max, targets, sum_exp, target_logit);
  }
  void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                const View& grad, Stream& stream) override {
    caller_.queue(
        "loss_gradient", stream,
        [=, this](Stream& s) {
          inner_.gradient(logits, valid, row_max, sum_exp, target_logit, targets, first_id, scale, loss, grad, s);
        },
        logits, row_max, sum_exp, target_logit, targets, loss, grad);
  }
  void accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) override {
    caller_.queue(
        "loss_sum", stream, [=, this](Stream& s) { inner_.accumulate(loss, targets, slots, s); }, loss, targets, slots);
  }

 private:
  Caller& caller_;
  LossKernels& inner_;
};

class RemoteUpdate final : public UpdateKernels {
 public:
  RemoteUpdate(Caller& caller, UpdateKernels& inner) : caller_(caller), inner_(inner) {}
  void adamw(const AdamW& args, Stream& stream) override {
    caller_.queue(
        "adamw", stream, [this, args](Stream& s) { inner_.adamw(args, s); }, args.gradient, args.master, args.moment1,
        args.moment2, args.working, args.factor, args.skip);
  }
  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) override {
    caller_.queue(
        "update_scale", stream, [=, this](Stream& s) { inner_.scale(x, a, factor, skip, s); }, x, factor, skip);
  }
  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    caller_.queue(
        "lerp", stream, [=, this](Stream& s) { inner_.lerp(x, y, t, factor, skip, s); }, x, y, factor, skip);
  }
  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) override {
    caller_.queue(
        "sign", stream, [=, this](Stream& s) { inner_.sign(x, dst, skip, s); }, x, dst, skip);
  }
  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    caller_.queue(
        "axpy", stream, [=, this](Stream& s) { inner_.axpy(a, x, y, working, factor, skip, s); }, x, y, working, factor,
        skip);
  }
  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream& stream) override {
    caller_.queue(
        "gemm", stream, [=, this](Stream& s) { inner_.gemm(a, transpose_a, b, transpose_b, alpha, beta, dst, s); }, a,
        b, dst);
  }
  void squared_sum(const View& x, double* slot, Stream& stream) override {
    caller_.queue(
        "squared_sum", stream, [=, this](Stream& s) { inner_.squared_sum(x, slot, s); }, x, slot);
  }
  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) override {
    caller_.queue(
        "verdict", stream, [=, this](Stream& s) { inner_.verdict(rule, factor, skip, s); }, rule.slots, factor, skip);
  }

 private:
  Caller& caller_;
  UpdateKernels& inner_;
};

class RemoteRandom final : public RandomKernels {
 public:
  RemoteRandom(Caller& caller, RandomKernels& inner) : caller_(caller), inner_(inner) {}
  void normal(const View& dst, PhiloxKey key, std::int64_t first, double mean, double std, Stream& stream) override {
    caller_.queue(
        "normal", stream, [=, this](Stream& s) { inner_.normal(dst, key, first, mean, std, s); }, dst);
  }
  void uniform(const View& dst, PhiloxKey key, std::int64_t first, double low, double high, Stream& stream) override {
    caller_.queue(
        "uniform", stream, [=, this](Stream& s) { inner_.uniform(dst, key, first, low, high, s); }, dst);
  }

 private:
  Caller& caller_;
  RandomKernels& inner_;
};

}  // namespace espalier::remote
