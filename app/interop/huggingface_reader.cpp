#include "interop/huggingface_reader.hpp"

#include <algorithm>
#include <vector>

namespace espalier::app {
namespace {

/// The same order in the file.
class PlainReader final : public WeightReader {
 public:
  PlainReader(const SafetensorsFile& file, const FileTensor& tensor) : file_(file), tensor_(tensor) {}
  ~PlainReader() override { file_.forget(tensor_); }
  void read(std::int64_t first, std::span<float> dst) override { read_f32(tensor_, first, dst); }

 private:
  const SafetensorsFile& file_;
  const FileTensor& tensor_;
};

/// GPT-2's linear layers: [in, out] in the file, ours [out, in], and the rows of q, k and v in another order.
class MovedReader final : public WeightReader {
 public:
  MovedReader(const SafetensorsFile& file, const FileTensor& tensor, const FileLayout& layout, const ModelShape& shape)
      : file_(file), tensor_(tensor), layout_(layout), shape_(shape) {
    const std::vector<std::int64_t>& stored = layout.shape;
    outputs_ = layout.transposed ? stored[1] : stored[0];
    inputs_ = layout.transposed ? stored[0] : stored.size() > 1 ? stored[1] : 1;
  }
  ~MovedReader() override { file_.forget(tensor_); }

  void read(std::int64_t first, std::span<float> dst) override {
    const auto count = static_cast<std::int64_t>(dst.size());
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = (first + done) / inputs_, column = (first + done) % inputs_;
      const std::int64_t whole = column == 0 ? (count - done) / inputs_ : 0;
      const std::int64_t rows = std::max<std::int64_t>(whole, 1);
      const std::int64_t columns = whole > 0 ? inputs_ : std::min(inputs_ - column, count - done);
      read_rows(row, rows, column, columns, dst.data() + done);
      done += rows * columns;
    }
  }

 private:
  std::int64_t place(std::int64_t row) const { return layout_.parts_apart ? apart_row(shape_, row) : row; }

  /// Rows that are neighbours in the file too are read in one go for each column.
  void read_rows(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, float* dst) {
    for (std::int64_t done = 0; done < rows;) {
      std::int64_t run = 1;
      while (done + run < rows && place(row + done + run) == place(row + done) + run) ++run;
      read_run(place(row + done), run, column, columns, dst + done * columns);
      done += run;
    }
  }

  void read_run(std::int64_t output, std::int64_t run, std::int64_t column, std::int64_t columns, float* dst) {
    if (!layout_.transposed) {
      read_f32(tensor_, output * inputs_ + column, std::span(dst, static_cast<std::size_t>(run * columns)));
      return;
    }
    line_.resize(static_cast<std::size_t>(run));
    for (std::int64_t input = 0; input < columns; ++input) {
      read_f32(tensor_, (column + input) * outputs_ + output, line_);
      for (std::int64_t i = 0; i < run; ++i) dst[i * columns + input] = line_[static_cast<std::size_t>(i)];
    }
  }

  const SafetensorsFile& file_;
  const FileTensor& tensor_;
  FileLayout layout_;
  ModelShape shape_;
  std::int64_t outputs_ = 0, inputs_ = 0;
  std::vector<float> line_;
};

}  // namespace

std::unique_ptr<WeightReader> open_file_tensor(const SafetensorsFile& file, const FileTensor& tensor,
                                               const FileLayout& layout, const ModelShape& shape) {
  if (!layout.transposed && !layout.parts_apart) return std::make_unique<PlainReader>(file, tensor);
  return std::make_unique<MovedReader>(file, tensor, layout, shape);
}

}  // namespace espalier::app
