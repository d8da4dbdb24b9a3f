#include "watched_backend.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::bench {
namespace {

double bytes_of(const View& view) { return view.data == nullptr ? 0.0 : static_cast<double>(view.bytes()); }
template <class... Views>
double bytes_of(const View& view, const Views&... others) {
  return bytes_of(view) + bytes_of(others...);
}

std::string size_of_view(const View& view) { return std::to_string(view.rows) + " x " + std::to_string(view.cols); }

Work moves(std::string part, double bytes) { return {std::move(part), bytes, 0, Bound::memory}; }
Work moves(const std::string& part, const View& shape, double bytes) {
  return moves(part + ", " + size_of_view(shape), bytes);
}

Work product(const Matmul& args) {
  const std::int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  Work work;
  work.part = "product " + std::to_string(args.dst.rows) + " x " + std::to_string(args.dst.cols) + " x " +
              std::to_string(k) +
              (args.transpose_a   ? ", weight gradient"
               : args.transpose_b ? ""
                                  : ", input gradient");
  if (args.bias) work.part += " + bias";
  if (args.gelu) work.part += " + gelu";
  if (args.gelu_src) work.part += " + gelu'";
  if (args.sum_a) work.part += " + bias gradient";
  work.bytes = bytes_of(args.a, args.b, args.dst, args.bias, args.gelu, args.gelu_src, args.sum_a);
  if (args.accumulate) work.bytes += bytes_of(args.dst);
  work.flops = 2.0 * static_cast<double>(args.dst.elements()) * static_cast<double>(k);
  work.bound = Bound::product;
  return work;
}

/// @param products  of the size queries · keys · channels: two forward, five backward.
Work attention(const Attention& shape, int products, std::string part, Bound bound) {
  const auto queries = static_cast<double>(shape.queries);
  const double pairs = queries * static_cast<double>(shape.first_query) + queries * (queries + 1) / 2;
  const auto channels = static_cast<double>(shape.batch * shape.heads * shape.head_dim);
  const double operand = channels * queries * static_cast<double>(espalier::size_of(shape.dtype));
  return {std::move(part), (products == 2 ? 4 : 8) * operand, 2.0 * products * pairs * channels, bound};
}

class WatchedMatrix final : public MatrixKernels {
 public:
  WatchedMatrix(MatrixKernels& real, Device& device, CallRecord& record)
      : real_(real), device_(device), record_(record) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return real_.workspace(shape); }
  bool fuses(const Matmul& shape) const override { return real_.fuses(shape); }
  std::size_t sum_workspace(std::int64_t rows, std::int64_t columns) const override {
    return real_.sum_workspace(rows, columns);
  }
  void matmul(const Matmul& args, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return product(args); }, [&] { real_.matmul(args, stream); });
  }
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("column sum", src, bytes_of(src)); },
        [&] { real_.column_sum(src, dst, accumulate, stream); });
  }

 private:
  MatrixKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedAttention final : public AttentionKernels {
 public:
  WatchedAttention(AttentionKernels& real, Device& device, CallRecord& record)
      : real_(real), device_(device), record_(record) {}
  Reason supports(const Attention& shape) const override { return real_.supports(shape); }
  std::size_t saved_bytes(const Attention& shape) const override { return real_.saved_bytes(shape); }
  std::size_t workspace(const Attention& shape) const override { return real_.workspace(shape); }
  void forward(const Attention& args, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return attention(args, 2, "attention", Bound::attention); },
        [&] { real_.forward(args, stream); });
  }
  void backward(const AttentionGradient& args, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return attention(args.forward, 5, "attention backward", Bound::attention_backward); },
        [&] { real_.backward(args, stream); });
  }

 private:
  AttentionKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedNorm final : public NormKernels {
 public:
  WatchedNorm(NormKernels& real, Device& device, CallRecord& record) : real_(real), device_(device), record_(record) {}
  Reason supports(DType working, std::int64_t hidden) const override { return real_.supports(working, hidden); }
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override {
    return real_.workspace(tokens, hidden);
  }
  void forward(const LayerNorm& args, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("layer norm", args.src, bytes_of(args.src, args.dst)); },
        [&] { real_.forward(args, stream); });
  }
  void backward(const LayerNormGradient& args, Stream& stream) override {
    record_.make(
        device_, stream,
        [&] {
          return moves("layer norm backward", args.src,
                       bytes_of(args.src, args.grad_dst, args.grad_src, args.residual));
        },
        [&] { real_.backward(args, stream); });
  }

 private:
  NormKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedElementwise final : public ElementwiseKernels {
 public:
  WatchedElementwise(ElementwiseKernels& real, Device& device, CallRecord& record)
      : real_(real), device_(device), record_(record) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  std::size_t embedding_workspace(std::int64_t tokens, std::int64_t rows) const override {
    return real_.embedding_workspace(tokens, rows);
  }
  void bias_gelu(const View& src, const View& bias, const View& dst, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("bias + gelu", src, bytes_of(src, dst)); },
        [&] { real_.bias_gelu(src, bias, dst, stream); });
  }
  void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                          Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("bias + gelu backward", src, bytes_of(grad_dst, src, grad_src)); },
        [&] { real_.bias_gelu_backward(grad_dst, src, bias, grad_src, stream); });
  }
  void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                        const View& dst, Stream& stream) override {
    const char* part = dropout.active() ? "bias + dropout + residual" : "bias + residual";
    record_.make(
        device_, stream, [&] { return moves(part, src, bytes_of(src, residual, dst)); },
        [&] { real_.bias_dropout_add(src, bias, residual, dropout, dst, stream); });
  }
  void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream& stream) override {
    if (!dropout.active() && grad_dst.data == grad_src.data) return;
    record_.make(
        device_, stream, [&] { return moves("dropout backward", grad_dst, bytes_of(grad_dst, grad_src)); },
        [&] { real_.dropout_backward(grad_dst, dropout, grad_src, stream); });
  }
  void embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("embedding", dst, 2 * bytes_of(dst)); },
        [&] { real_.embedding(ids, table, first_id, dst, stream); });
  }
  void embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id, const View& grad_table,
                          Stream& stream) override {
    const double rows = 2.0 * sizeof(float) * static_cast<double>(grad_dst.elements());  // of the table
    record_.make(
        device_, stream, [&] { return moves("embedding backward", grad_dst, bytes_of(grad_dst) + rows); },
        [&] { real_.embedding_backward(ids, grad_dst, first_id, grad_table, stream); });
  }
  void add(const View& a, const View& b, const View& dst, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves(b ? "add" : "convert", dst, bytes_of(a, b, dst)); },
        [&] { real_.add(a, b, dst, stream); });
  }
  void scale(const View& src, float factor, const View& dst, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("scale", dst, bytes_of(src, dst)); },
        [&] { real_.scale(src, factor, dst, stream); });
  }

 private:
  ElementwiseKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedLoss final : public LossKernels {
 public:
  WatchedLoss(LossKernels& real, Device& device, CallRecord& record) : real_(real), device_(device), record_(record) {}
  Reason supports(DType working) const override { return real_.supports(working); }
  void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("loss: row maximum", logits, bytes_of(logits)); },
        [&] { real_.row_max(logits, valid, row_max, stream); });
  }
  void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets, std::int64_t first_id,
               const View& sum_exp, const View& target_logit, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("loss: sum of exponentials", logits, bytes_of(logits)); },
        [&] { real_.exp_sum(logits, valid, row_max, targets, first_id, sum_exp, target_logit, stream); });
  }
  void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                const View& grad, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("loss: gradient", logits, bytes_of(logits, grad)); },
        [&] {
          real_.gradient(logits, valid, row_max, sum_exp, target_logit, targets, first_id, scale, loss, grad, stream);
        });
  }
  void accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("loss: sum", bytes_of(loss, targets)); },
        [&] { real_.accumulate(loss, targets, slots, stream); });
  }

 private:
  LossKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedUpdate final : public UpdateKernels {
 public:
  WatchedUpdate(UpdateKernels& real, Device& device, CallRecord& record)
      : real_(real), device_(device), record_(record) {}
  void adamw(const AdamW& args, Stream& stream) override {
    const double bytes = 7 * bytes_of(args.master) + bytes_of(args.working);
    record_.make(
        device_, stream, [&] { return moves("update: adamw", bytes); }, [&] { real_.adamw(args, stream); });
  }
  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("update: scale", 2 * bytes_of(x)); },
        [&] { real_.scale(x, a, factor, skip, stream); });
  }
  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("update: lerp", 3 * bytes_of(x)); },
        [&] { real_.lerp(x, y, t, factor, skip, stream); });
  }
  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("update: sign", 2 * bytes_of(x)); },
        [&] { real_.sign(x, dst, skip, stream); });
  }
  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("update: axpy", 3 * bytes_of(x) + bytes_of(working)); },
        [&] { real_.axpy(a, x, y, working, factor, skip, stream); });
  }
  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream& stream) override {
    const std::int64_t k = transpose_a ? a.rows : a.cols;
    const double flops = 2.0 * static_cast<double>(dst.elements()) * static_cast<double>(k);
    record_.make(
        device_, stream,
        [&] {
          return Work{"update: product", bytes_of(a, b, dst), flops, Bound::product};
        },
        [&] { real_.gemm(a, transpose_a, b, transpose_b, alpha, beta, dst, stream); });
  }
  void squared_sum(const View& x, double* slot, Stream& stream) override {
    record_.make(
        device_, stream, [&] { return moves("update: squared sum", bytes_of(x)); },
        [&] { real_.squared_sum(x, slot, stream); });
  }
  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) override {
    record_.make(
        device_, stream,
        [&] { return moves("update: verdict", static_cast<double>(rule.parameters + 2) * sizeof(double)); },
        [&] { real_.verdict(rule, factor, skip, stream); });
  }

 private:
  UpdateKernels& real_;
  Device& device_;
  CallRecord& record_;
};

class WatchedDevice final : public Device {
 public:
  WatchedDevice(Device& real, CallRecord& record) : real_(real), record_(record) {}
  std::string_view name() const override { return real_.name(); }
  bool host_accessible() const override { return real_.host_accessible(); }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override { return real_.reserve(bytes, purpose); }
  DeviceMemory reserve_near_host(std::size_t bytes, std::string_view purpose) override {
    return real_.reserve_near_host(bytes, purpose);
  }
  Stream& lane(Lane lane) override { return real_.lane(lane); }
  void order(Stream& first, Stream& then) override { real_.order(first, then); }
  void copy(const View& from, const View& to, Stream& stream) override {
    record_.make(
        real_, stream, [&] { return moves("device: copies", bytes_of(from, to)); },
        [&] { real_.copy(from, to, stream); });
  }
  void fill_zero(const View& view, Stream& stream) override {
    record_.make(
        real_, stream, [&] { return moves("device: zeros", bytes_of(view)); }, [&] { real_.fill_zero(view, stream); });
  }
  void wait(Stream& stream) override { real_.wait(stream); }
  std::vector<MemoryUse> memory_use() const override { return real_.memory_use(); }

 protected:
  void release(void*, std::size_t) noexcept override {}  // memory belongs to the real device

 private:
  Device& real_;
  CallRecord& record_;
};

class NoStream final : public Stream {};

/// Addresses that nobody may look behind. Host memory is what it did not hand out.
class UnbackedDevice final : public Device {
 public:
  UnbackedDevice() {
    void* const begin = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) throw IoError("device_bench", "cannot reserve addresses", errno);
    begin_ = static_cast<std::byte*>(begin);
  }
  ~UnbackedDevice() override { ::munmap(begin_, kBytes); }
  std::string_view name() const override { return "no device"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t bytes, std::string_view) override {
    const std::size_t at = used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > kBytes) throw DeviceError("device_bench: the model needs more addresses than are reserved");
    return {this, begin_ + at, bytes};
  }
  DeviceMemory reserve_near_host(std::size_t bytes, std::string_view purpose) override {
    return reserve(bytes, purpose);
  }
  Stream& lane(Lane) override { return stream_; }
  void order(Stream&, Stream&) override {}
  void copy(const View&, const View& to, Stream&) override {
    const auto* data = static_cast<const std::byte*>(to.data);
    if (data >= begin_ && data < begin_ + kBytes) return;
    for (std::int64_t row = 0; row < to.rows; ++row) {
      std::memset(to.at(row, 0), 0, static_cast<std::size_t>(to.cols) * espalier::size_of(to.dtype));
    }
  }
  void fill_zero(const View&, Stream&) override {}
  void wait(Stream&) override {}
  std::vector<MemoryUse> memory_use() const override { return {}; }

 protected:
  void release(void*, std::size_t) noexcept override {}

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 44;
  std::byte* begin_ = nullptr;
  std::size_t used_ = 0;
  NoStream stream_;
};

class WatchedBackend final : public Backend {
 public:
  WatchedBackend(Backend& real, std::unique_ptr<Device> no_device, CallRecord& record)
      : real_(real),
        no_device_(std::move(no_device)),
        device_(no_device_ ? *no_device_ : real.device(), record),
        matrix_(*real.kernels().matrix, under(), record),
        attention_(*real.kernels().attention, under(), record),
        norm_(*real.kernels().norm, under(), record),
        elementwise_(*real.kernels().elementwise, under(), record),
        loss_(*real.kernels().loss, under(), record),
        update_(*real.kernels().update, under(), record),
        kernels_{&matrix_, &attention_, &norm_, &elementwise_, &loss_, &update_, real.kernels().random} {}
  std::string description() const override { return real_.description(); }
  Device& device() override { return device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override { return real_.supports(precision); }
  void prepare(const Preparation& work) override {
    if (!no_device_) real_.prepare(work);
  }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return no_device_ ? std::move(communicator) : real_.wrap(std::move(communicator));
  }

 private:
  /// What is waited for.
  Device& under() { return no_device_ ? *no_device_ : real_.device(); }

  Backend& real_;
  std::unique_ptr<Device> no_device_;
  WatchedDevice device_;
  WatchedMatrix matrix_;
  WatchedAttention attention_;
  WatchedNorm norm_;
  WatchedElementwise elementwise_;
  WatchedLoss loss_;
  WatchedUpdate update_;
  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<Backend> watch(Backend& backend, CallRecord& record) {
  return std::make_unique<WatchedBackend>(backend, nullptr, record);
}

std::unique_ptr<Backend> watch_dry(Backend& backend, CallRecord& record) {
  return std::make_unique<WatchedBackend>(backend, std::make_unique<UnbackedDevice>(), record);
}

}  // namespace espalier::bench
