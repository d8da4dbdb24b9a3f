#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "espalier/device.hpp"
#include "espalier/export.hpp"
#include "espalier/random.hpp"
#include "espalier/reason.hpp"
#include "espalier/tensor.hpp"

/// The kernels a backend offers, in families of at most eight calls; a recipe may override one family at a time.
///
/// Common rules. Views are row-major with a row stride; `tokens` are rows (batch and sequence flattened, sequence fastest).
/// "working" stands for the optimizer's working type (f32, bf16 or f16). Every sum is made in FP32 (FP64 where said), in an
/// order fixed by the shape alone, never by the number of threads, and rounded once to nearest even on store. All calls are
/// asynchronous on their stream: operands must stay alive until the stream passes. No call allocates host memory after
/// the first call with the same shape. Shapes that do not fit are our own bug (ESPALIER_ASSERT), not a user's.
namespace espalier {

/// @defgroup matrix
struct Matmul {
  View a;  ///< [M, K], or [K, M] when transpose_a
  View b;  ///< [K, N], or [N, K] when transpose_b; same dtype as a
  View dst;  ///< [M, N], working type or f32
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< dst += a·b instead of dst = a·b; dst is f32 then
  View bias;                ///< optional [N], working type: added to each row before the one rounding
  /// Not 0: the contents of b are the same in every call with this b.data and version, so a packed copy may be kept.
  std::uint64_t b_version = 0;
  // What a provider may do in the same pass: set only where MatrixKernels::fuses() takes the shape.
  View gelu{};      ///< optional [M, N], dtype of dst: gelu(dst) before its rounding, in bias_gelu's form; dst keeps what goes into it
  View gelu_src{};  ///< optional [M, N], dtype of dst, the dst of a product with `gelu`: dst = (a·b) · gelu'(gelu_src)
  View sum_a{};     ///< optional f32 [M]: Σ_k op(a), a bias gradient where dst is the weight gradient
  bool add_sum = false;  ///< sum_a is added to
};

class ESPALIER_API MatrixKernels {
 public:
  MatrixKernels(const MatrixKernels&) = delete;
  MatrixKernels& operator=(const MatrixKernels&) = delete;
  virtual ~MatrixKernels();

  virtual Reason supports(DType working) const = 0;
  /// Scratch bytes the provider keeps for this shape; counted by the plan.
  virtual std::size_t workspace(const Matmul& shape) const = 0;
  /// Whether matmul() does all of gelu, gelu_src and sum_a that the shape has; else the caller runs kernels for them. Views may
  /// lack memory; where they have it, rows of gelu and gelu_src start at multiples of 16 bytes.
  virtual bool fuses(const Matmul& shape) const;
  /// dst = (transpose_a ? aᵀ : a) · (transpose_b ? bᵀ : b) [+ bias] [+ dst].
  virtual void matmul(const Matmul& args, Stream& stream) = 0;
  /// Sum over rows: dst[c] (+)= Σ_r src[r, c]. src working [rows, N], dst f32 [N].
  virtual void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) = 0;
  /// Scratch bytes of column_sum over [rows, columns] elements.
  virtual std::size_t sum_workspace(std::int64_t rows, std::int64_t columns) const;

 protected:
  MatrixKernels() = default;
};

/// @defgroup attention
/// Element (batch b, position s, head h, channel d) of an operand lies at data + b*batch + s*position + h*head + d (elements).
struct AttentionOperand {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t position_stride = 0;
  std::int64_t head_stride = 0;
};

/// Causal attention with ALiBi: softmax_j(q_i·k_j · scale + slope_h · (j − i)) v_j over j <= i, for query positions
/// i = first_query … first_query + queries − 1 and keys j = 0 … keys − 1. Training reads q, k, v interleaved in one buffer
/// (per head its q, then k, then v); decoding reads k and v from a cache.
/// Source: Press et al. 2021, arXiv:2108.12409; slopes in FP32 for any number of heads from alibi_slopes().
struct Attention {
  AttentionOperand q, k, v;
  AttentionOperand out;            ///< context, written by forward
  DType dtype = DType::f32;        ///< of q, k, v, out: working
  std::int64_t batch = 0;
  std::int64_t heads = 0;          ///< own heads
  std::int64_t head_dim = 0;
  std::int64_t queries = 0;
  std::int64_t first_query = 0;
  std::int64_t keys = 0;           ///< keys >= first_query + queries when causal
  float scale = 1.0f;
  const float* slopes = nullptr;   ///< [heads] device memory, or null for none (learned positions)
  /// Optional [batch] i32 device memory: number of leading keys that count for each sample (ragged batches); null means all.
  const std::int32_t* key_lengths = nullptr;
  Dropout dropout;                 ///< of the probabilities
  View saved;                      ///< u8 [saved_bytes]: what backward needs; may be empty in a forward without backward
};

struct AttentionGradient {
  Attention forward;               ///< the same operands, `out` holding the context; `saved` as forward left it
  AttentionOperand grad_out;       ///< working
  AttentionOperand grad_q, grad_k, grad_v;  ///< working, overwritten
};

class ESPALIER_API AttentionKernels {
 public:
  AttentionKernels(const AttentionKernels&) = delete;
  AttentionKernels& operator=(const AttentionKernels&) = delete;
  virtual ~AttentionKernels();

  /// Why this provider cannot take the shape (length, head size, dropout), or nothing.
  virtual Reason supports(const Attention& shape) const = 0;
  /// Bytes of `saved` for one micro-batch and layer.
  virtual std::size_t saved_bytes(const Attention& shape) const = 0;
  virtual std::size_t workspace(const Attention& shape) const = 0;
  /// A row without an allowed key gives zeros; a NaN score stays NaN.
  virtual void forward(const Attention& args, Stream& stream) = 0;
  virtual void backward(const AttentionGradient& args, Stream& stream) = 0;

 protected:
  AttentionKernels() = default;
};

/// @defgroup norm
/// y = (x − mean) / sqrt(variance + eps) · weight + bias over the last dimension, biased variance (Ba et al. 2016, arXiv:1607.06450).
struct LayerNorm {
  View src;     ///< [tokens, hidden] working
  View weight;  ///< [hidden] working
  View bias;    ///< [hidden] working
  View dst;     ///< [tokens, hidden] working; may not alias src
  View mean;    ///< [tokens] f32, written; may be empty in a forward without backward
  View rstd;    ///< [tokens] f32, written; may be empty likewise
  float eps = 1e-5f;
};

struct LayerNormGradient {
  View grad_dst;     ///< [tokens, hidden] working
  View src, weight;  ///< as in forward
  View mean, rstd;   ///< from forward
  View grad_src;     ///< [tokens, hidden] working, written; may alias grad_dst
  View residual;     ///< optional [tokens, hidden] working: grad_src = gradient + residual, one rounding; may alias grad_src
  View grad_weight;  ///< [hidden] f32
  View grad_bias;    ///< [hidden] f32
  bool accumulate = false;  ///< add to grad_weight and grad_bias instead of overwriting them
};

class ESPALIER_API NormKernels {
 public:
  NormKernels(const NormKernels&) = delete;
  NormKernels& operator=(const NormKernels&) = delete;
  virtual ~NormKernels();

  virtual Reason supports(DType working, std::int64_t hidden) const = 0;
  virtual std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const = 0;
  virtual void forward(const LayerNorm& args, Stream& stream) = 0;
  virtual void backward(const LayerNormGradient& args, Stream& stream) = 0;

 protected:
  NormKernels() = default;
};

/// @defgroup elementwise
class ESPALIER_API ElementwiseKernels {
 public:
  ElementwiseKernels(const ElementwiseKernels&) = delete;
  ElementwiseKernels& operator=(const ElementwiseKernels&) = delete;
  virtual ~ElementwiseKernels();

  virtual Reason supports(DType working) const = 0;
  /// dst = gelu(src + bias), tanh form: 0.5 x (1 + tanh(0.79788456 x (1 + 0.044715 x²))) (Hendrycks & Gimpel 2016,
  /// arXiv:1606.08415; the constants as BLOOM has them). src [tokens, ffn], bias [ffn], dst may alias src.
  virtual void bias_gelu(const View& src, const View& bias, const View& dst, Stream& stream) = 0;
  /// grad_src = grad_dst · gelu'(src + bias), the exact derivative of the tanh form. grad_src may alias grad_dst.
  virtual void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                                  Stream& stream) = 0;
  /// dst = residual + dropout(src + bias), in FP32, one rounding. All [tokens, hidden]; bias [hidden] or empty; dst may alias
  /// src or residual.
  virtual void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                                const View& dst, Stream& stream) = 0;
  /// grad_src = grad_dst · mask / (1 − p). Aliasing allowed. With p = 0 a plain copy (none when they alias).
  virtual void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream& stream) = 0;
  /// dst[t] = table[ids[t] − first_id] for ids in [first_id, first_id + table.rows), zeros elsewhere (vocabulary-parallel).
  /// ids i32 [tokens], table [rows, hidden] working, dst [tokens, hidden].
  virtual void embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream& stream) = 0;
  /// grad_table[ids[t] − first_id] += grad_dst[t], tokens in ascending order. grad_table f32, grad_dst working.
  virtual void embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id, const View& grad_table,
                                  Stream& stream) = 0;
  /// Scratch bytes of embedding_backward.
  virtual std::size_t embedding_workspace(std::int64_t tokens, std::int64_t table_rows) const;
  /// dst = a + b elementwise in FP32, one rounding; any of f32, bf16, f16 each; b may be empty (a conversion). dst may alias either.
  virtual void add(const View& a, const View& b, const View& dst, Stream& stream) = 0;
  /// dst = src · factor, converting; f32, bf16, f16 each. dst may alias src when the dtypes are equal.
  virtual void scale(const View& src, float factor, const View& dst, Stream& stream) = 0;

 protected:
  ElementwiseKernels() = default;
};

/// @defgroup loss
/// Cross entropy over a vocabulary split by columns, in three calls, so that only three vectors [tokens] cross the tensor
/// group and never the logits: row maximum (reduce: max), sum of exponentials and the target's logit (reduce: sum), gradient.
class ESPALIER_API LossKernels {
 public:
  LossKernels(const LossKernels&) = delete;
  LossKernels& operator=(const LossKernels&) = delete;
  virtual ~LossKernels();

  virtual Reason supports(DType working) const = 0;
  /// row_max[t] = max over columns [0, valid) of logits. logits f32 [tokens, own columns], row_max f32 [tokens].
  /// @param valid  own columns that are real; the others are padding and take no part.
  virtual void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) = 0;
  /// sum_exp[t] = Σ_{c < valid} exp(logits[t, c] − row_max[t]); target_logit[t] = logits[t, target − first_id] − row_max[t] when
  /// this rank owns the target, else 0. targets i32 [tokens]: a negative one is masked.
  virtual void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets,
                       std::int64_t first_id, const View& sum_exp, const View& target_logit, Stream& stream) = 0;
  /// loss[t] = log(sum_exp) − target_logit, f32 [tokens], 0 where masked; loss may be empty.
  /// grad[t, c] = (softmax − onehot) · scale in grad's dtype; 0 where masked and in padded columns. grad may be empty, or lie on
  /// the logits' memory when it has their dtype and stride.
  virtual void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                        const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                        const View& grad, Stream& stream) = 0;
  /// slots[0] += Σ loss (FP64, ascending order), slots[1] += number of targets >= 0. slots f64 [2].
  virtual void accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) = 0;

 protected:
  LossKernels() = default;
};

/// @defgroup update
/// AdamW with decoupled decay (Loshchilov & Hutter 2017, arXiv:1711.05101), one pass:
///   g = gradient · factor;  w −= lr · decay · w;  m = β1 m + (1 − β1) g;  v = β2 v + (1 − β2) g²;
///   w −= lr / (1 − β1^t) · m / (sqrt(v) / sqrt(1 − β2^t) + eps);  working = round(w).
struct AdamW {
  View gradient;  ///< f32 [n]
  View master;    ///< f32 [n]
  View moment1, moment2;  ///< f32 [n]
  View working;   ///< [n], or empty when the master weights are the working weights
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;            ///< t: applied steps, this one included
  const float* factor = nullptr;    ///< device: what gradients are multiplied by (scaling and clipping in one)
  const std::int32_t* skip = nullptr;  ///< device: not 0 = change nothing
};

/// What one step's vector (docs/architecture.md section 8, "One verdict a step") is turned into.
struct VerdictRule {
  const double* slots = nullptr;  ///< device f64 [parameters + 2]: Σ g² of each parameter, Σ loss, target tokens; world-summed
  std::int64_t parameters = 0;
  double nominal_tokens = 0;      ///< tokens of the global batch if none is masked
  double base = 1;                ///< 1 / (micro-batches · data size) / loss scale: before the token correction
  double clip = 0;                ///< limit of the global norm, 0 for none
};

/// Everything an optimizer may do to memory. All views contiguous; f32 unless said. None changes anything when *skip != 0
/// (skip may be null).
class ESPALIER_API UpdateKernels {
 public:
  UpdateKernels(const UpdateKernels&) = delete;
  UpdateKernels& operator=(const UpdateKernels&) = delete;
  virtual ~UpdateKernels();

  virtual void adamw(const AdamW& args, Stream& stream) = 0;
  /// x *= a, further multiplied by *factor unless factor is null.
  virtual void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) = 0;
  /// x += t (y − x), y further multiplied by *factor unless null.
  virtual void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
                    Stream& stream) = 0;
  /// dst = sign(x): −1, 0 or 1.
  virtual void sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) = 0;
  /// y += a x, x further multiplied by *factor unless null; then working = round(y) unless working is empty.
  virtual void axpy(double a, const View& x, const View& y, const View& working, const float* factor,
                    const std::int32_t* skip, Stream& stream) = 0;
  /// dst = alpha · op(a) · op(b) + beta · dst, FP32 matrices (for optimizers of whole matrices).
  virtual void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
                    const View& dst, Stream& stream) = 0;
  /// *slot += Σ x² in FP64, blocks of fixed size in ascending order; slot is one device f64. NaN and infinity survive.
  virtual void squared_sum(const View& x, double* slot, Stream& stream) = 0;
  /// From the summed slots: norm = sqrt(Σ slots) · base · nominal/actual tokens; *skip = norm or loss sum not finite;
  /// *factor = base · nominal/actual · min(1, clip / (norm + 1e-6)). Slots are added in index order. No target token at all
  /// gives factor 0.
  virtual void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) = 0;

 protected:
  UpdateKernels() = default;
};

/// @defgroup random
class ESPALIER_API RandomKernels {
 public:
  RandomKernels(const RandomKernels&) = delete;
  RandomKernels& operator=(const RandomKernels&) = delete;
  virtual ~RandomKernels();

  /// dst[i] = mean + std · N(0,1) of element `first + i` of a logical tensor: Box-Muller in FP64 on the Philox block of counter
  /// {i / 2 as 64 bits, 0, 0}, cosine for even i, sine for odd, rounded once. With w(a, b) = the upper 53 bits of word a | word
  /// b << 32: u1 = (w(0, 1) + 1) / 2^53, u2 = w(2, 3) / 2^53, radius sqrt(-2 ln u1), angle 2π u2.
  virtual void normal(const View& dst, PhiloxKey key, std::int64_t first, double mean, double std, Stream& stream) = 0;
  /// dst[i] = low + (high − low) · u in [low, high), from the same block: u = w(0, 1) / 2^53 for even i, w(2, 3) / 2^53 for odd.
  virtual void uniform(const View& dst, PhiloxKey key, std::int64_t first, double low, double high, Stream& stream) = 0;

 protected:
  RandomKernels() = default;
};

/// ALiBi slopes of `heads` heads, the rule for counts that are not a power of two included: the geometric series of the next
/// lower power of two, then every second slope of the series twice as long. Rank r of a tensor group uses its own range of these.
/// @param slopes  [heads], written.
ESPALIER_API void alibi_slopes(std::int64_t heads, float* slopes);

}  // namespace espalier
