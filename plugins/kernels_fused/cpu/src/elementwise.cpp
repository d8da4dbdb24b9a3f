#include <cstring>

#include "kernels.hpp"

namespace espalier::kernels_fused {

Reason FusedElementwise::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused: no element-wise kernels in " + std::string(name_of(working));
}

void FusedElementwise::bias_gelu(const View& src, const View& bias, const View& dst, Stream&) {
  run_rows(pool_, src.rows, src.cols,
           [&](std::int64_t begin, std::int64_t end) { ops_.bias_gelu(src, bias, dst, begin, end); });
}

void FusedElementwise::bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                                          Stream&) {
  run_rows(pool_, src.rows, src.cols, [&](std::int64_t begin, std::int64_t end) {
    ops_.bias_gelu_backward(grad_dst, src, bias, grad_src, begin, end);
  });
}

void FusedElementwise::bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                                        const View& dst, Stream&) {
  run_rows(pool_, src.rows, src.cols, [&](std::int64_t begin, std::int64_t end) {
    ops_.bias_dropout_add(src, bias, residual, dropout, dst, begin, end);
  });
}

void FusedElementwise::dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream&) {
  if (!dropout.active() && grad_dst.data == grad_src.data) return;
  run_rows(pool_, grad_dst.rows, grad_dst.cols, [&](std::int64_t begin, std::int64_t end) {
    ops_.dropout_backward(grad_dst, dropout, grad_src, begin, end);
  });
}

void FusedElementwise::embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream&) {
  const auto* id = ids.as<std::int32_t>();
  const std::size_t row_bytes = static_cast<std::size_t>(dst.cols) * size_of(dst.dtype);
  run_rows(pool_, dst.rows, dst.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = id[t] - first_id;
      if (row >= 0 && row < table.rows) {
        std::memcpy(dst.at(t, 0), table.at(row, 0), row_bytes);
      } else {
        std::memset(dst.at(t, 0), 0, row_bytes);
      }
    }
  });
}

void FusedElementwise::embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id,
                                          const View& grad_table, Stream&) {
  // Columns are shared out, not tokens: two tokens may be the same.
  constexpr std::int64_t kColumns = 128;
  const auto* id = ids.as<std::int32_t>();
  pool_.run((grad_dst.cols + kColumns - 1) / kColumns, [&](std::int64_t item) {
    const std::int64_t begin = item * kColumns, n = std::min(kColumns, grad_dst.cols - begin);
    for (std::int64_t t = 0; t < grad_dst.rows; ++t) {
      const std::int64_t row = id[t] - first_id;
      if (row < 0 || row >= grad_table.rows) continue;
      ops_.accumulate(grad_dst.at(t, begin), grad_dst.dtype, grad_table.row<float>(row) + begin, n);
    }
  });
}

void FusedElementwise::add(const View& a, const View& b, const View& dst, Stream&) {
  // Long vectors, which are one row, are cut as well.
  if (a.rows == 1) {
    run_rows(pool_, (a.cols + kItemElements - 1) / kItemElements, kItemElements, [&](std::int64_t item, std::int64_t) {
      const std::int64_t begin = item * kItemElements, end = std::min(a.cols, begin + kItemElements);
      ops_.add(a.col_range(begin, end), b.empty() ? b : b.col_range(begin, end), dst.col_range(begin, end), 0, 1);
    });
    return;
  }
  run_rows(pool_, a.rows, a.cols, [&](std::int64_t begin, std::int64_t end) { ops_.add(a, b, dst, begin, end); });
}

void FusedElementwise::scale(const View& src, float factor, const View& dst, Stream&) {
  if (src.rows == 1) {
    run_rows(pool_, (src.cols + kItemElements - 1) / kItemElements, kItemElements,
             [&](std::int64_t item, std::int64_t) {
               const std::int64_t begin = item * kItemElements, end = std::min(src.cols, begin + kItemElements);
               ops_.scale(src.col_range(begin, end), factor, dst.col_range(begin, end), 0, 1);
             });
    return;
  }
  run_rows(pool_, src.rows, src.cols,
           [&](std::int64_t begin, std::int64_t end) { ops_.scale(src, factor, dst, begin, end); });
}

}  // namespace espalier::kernels_fused
