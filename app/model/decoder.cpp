#include "model/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "espalier/error.hpp"
#include "model/dry.hpp"
#include "model/model_context.hpp"
#include "model/roles.hpp"

namespace espalier::app {
namespace {

constexpr std::int64_t kNoLogits = -1;

/// Rows that belong to one sequence: `count` new tokens after `length` cached ones.
struct Segment {
  int sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t count = 0;
  std::int64_t length = 0;
  std::int64_t part = kNoLogits;  ///< of the request, when these rows end it: its logits are wanted
};

constexpr double kMostBytes = 9e18;  // 63 bits

}  // namespace

class Decoder::Impl {
 public:
  Impl(const DecoderSetup& setup, int sequences, std::int64_t max_length, std::int64_t prompt_block)
      : setup_(setup), shape_(setup.facts->model), max_length_(max_length), prompt_block_(prompt_block) {
    check();
    parts_.assign(setup.parts.begin(), setup.parts.end());
    if (parts_.empty()) parts_ = {{0, head_layer() + 1}};
    context_ = make_context(*setup.facts, *setup.parameters, *setup.backend, *setup.tensor, *setup.data);
    context_.arena = &arena_;
    slopes_ = load_slopes(context_);
    roles_ = find_roles(shape_, setup.local);
    columns_ = std::min(shape_.tokenizer_vocab > 0 ? shape_.tokenizer_vocab : shape_.vocab, shape_.vocab);
    lengths_.assign(static_cast<std::size_t>(sequences), 0);
    rows_ = std::max<std::int64_t>(prompt_block, sequences);
    Device& device = *context_.device;
    if (stages() > 1) {
      outgoing_ =
          device.reserve(static_cast<std::size_t>(rows_ * shape_.hidden) * size_of(context_.working), "activations");
    }
    reserve_cache(sequences);
    ids_.resize(static_cast<std::size_t>(rows_));
    positions_.resize(static_cast<std::size_t>(rows_));
    id_memory_ = device.reserve(2 * aligned(ids_.size() * sizeof(std::int32_t)), "key/value cache");
    logits_ = device.reserve(static_cast<std::size_t>(sequences * shape_.vocab) * sizeof(float), "key/value cache");
    segments_.reserve(static_cast<std::size_t>(sequences));
    size_arena(sequences);
  }

  bool has_logits() const { return parts_.back().contains(head_layer()); }
  std::int64_t columns() const { return columns_; }
  int sequences() const { return static_cast<int>(lengths_.size()); }
  std::int64_t length(int sequence) const { return lengths_[static_cast<std::size_t>(sequence)]; }
  void reset(int sequence) { lengths_[static_cast<std::size_t>(sequence)] = 0; }

  void extend(std::span<const Part> parts, std::span<float> logits, FunctionRef<void(std::size_t, std::int64_t)> read) {
    ESPALIER_ASSERT(parts.size() <= lengths_.size() &&
                    logits.size() == parts.size() * static_cast<std::size_t>(columns_));
    std::size_t part = 0, done = 0;  // what is behind us: whole parts, and tokens of the next
    while (part < parts.size()) {
      segments_.clear();
      const std::size_t first = part;
      std::int64_t room = rows_;
      while (part < parts.size() && room > 0) {
        const std::span<const std::int32_t> rest = parts[part].tokens.subspan(done);
        const auto n = std::min(std::ssize(rest), room);
        ESPALIER_ASSERT(n > 0);
        const bool ends = n == std::ssize(rest);
        add_segment(parts[part].sequence, rest.first(static_cast<std::size_t>(n)),
                    ends ? static_cast<std::int64_t>(part) : kNoLogits);
        room -= n;
        done = ends ? 0 : done + static_cast<std::size_t>(n);
        if (ends) ++part;
      }
      run(logits);
      for (std::size_t i = 0; i < segments_.size(); ++i) read(first + i, segments_[i].count);
    }
  }

  void finish() {
    if (sent_) setup_.pipeline->finish(std::exchange(sent_, Request{}), *context_.stream);
  }

 private:
  int head_layer() const { return static_cast<int>(shape_.layers) + 1; }
  int stages() const { return setup_.pipeline == nullptr ? 1 : setup_.pipeline->size(); }
  int stage() const { return setup_.pipeline == nullptr ? 0 : setup_.pipeline->rank(); }

  /// Numbers this stage's blocks in the cache; returns how many there are.
  std::int64_t place_layers() {
    cache_index_.assign(static_cast<std::size_t>(head_layer()) + 1, -1);
    std::int64_t blocks = 0;
    for (const LayerRange& part : parts_) {
      for (int layer = std::max(part.first, 1); layer < std::min(part.end, head_layer()); ++layer) {
        cache_index_[static_cast<std::size_t>(layer)] = blocks++;
      }
    }
    return blocks;
  }

  /// Keys and values in one piece: what does not fit is refused before any of it is touched.
  void reserve_cache(int sequences) {
    const auto a_token = static_cast<double>(2 * place_layers() * context_.own_hidden()) *
                         static_cast<double>(size_of(context_.working));
    const double bytes = a_token * sequences * static_cast<double>(max_length_);
    try {
      if (bytes > kMostBytes) throw DeviceError("no device has so many");
      cache_ = context_.device->reserve(static_cast<std::size_t>(bytes), "key/value cache");
    } catch (const DeviceError& error) {
      // What the device advises is meant for training.
      const std::string_view reason =
          std::string_view(error.what()).substr(0, std::string_view(error.what()).find(';'));
      throw DeviceError("keys and values of " + std::to_string(sequences) + (sequences == 1 ? " text" : " texts") +
                        " of up to " + std::to_string(max_length_) + " tokens need " + whole(bytes) + " bytes, " +
                        whole(a_token) +
                        " a token; shorten the prompt, draw fewer tokens, work on fewer texts at once (--batch), " +
                        "or spread the model over more ranks (" + std::string(reason) + ")");
    }
  }
  static std::string whole(double number) {
    std::string text = std::to_string(number);
    return text.substr(0, text.find('.'));
  }

  void check() const {
    if (const Reason reason = setup_.tensor->accepts(shape_)) throw ConfigError("parallel.tensor: " + *reason);
    const std::int64_t one_each = setup_.tensor->size();
    if (setup_.tensor->rows(one_each, Region::outside) != one_each) {
      throw ConfigError(
          "parallel.tensor: decoding goes token by token, which cannot be split over ranks; add --set "
          "parallel.tensor.sequence_parallel=false");
    }
    if (max_length_ > std::numeric_limits<std::int32_t>::max()) {
      throw ConfigError("sequences of up to " + std::to_string(max_length_) + " tokens asked for, but positions have " +
                        "31 bits; shorten the prompt, or draw fewer tokens");
    }
    if (shape_.positions > 0 && max_length_ > shape_.positions) {
      throw ConfigError("model.positions: sequences of up to " + std::to_string(max_length_) +
                        " tokens asked for, but only " + std::to_string(shape_.positions) + " learned positions");
    }
  }

  void add_segment(int sequence, std::span<const std::int32_t> tokens, std::int64_t part) {
    std::int64_t& length = lengths_[static_cast<std::size_t>(sequence)];
    const Segment* last = segments_.empty() ? nullptr : &segments_.back();
    const Segment segment{sequence, last == nullptr ? 0 : last->first_row + last->count,
                          static_cast<std::int64_t>(tokens.size()), length, part};
    ESPALIER_ASSERT(length + segment.count <= max_length_);
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const auto row = static_cast<std::size_t>(segment.first_row + i);
      ids_[row] = tokens[static_cast<std::size_t>(i)];
      positions_[row] = static_cast<std::int32_t>(length + i);
    }
    segments_.push_back(segment);
    length += segment.count;
  }

  /// Peak of what uses most: all rows, and the end of every sequence among them.
  void size_arena(int sequences) {
    DryRun dry(context_, setup_.local);
    const std::int64_t first = rows_ - sequences + 1;
    segments_.assign(1, {0, 0, first, 0, 0});
    for (int s = 1; s < sequences; ++s) segments_.push_back({s, first + s - 1, 1, 0, s});
    forward(dry.context(), false);
    segments_.clear();
    arena_.reserve(*context_.device, dry.arena().peak_bytes(), dry.arena().peak_slots());
  }

  void run(std::span<float> logits) {
    Device& device = *context_.device;
    const std::int64_t rows = segments_.back().first_row + segments_.back().count;
    device.copy(View::vector(ids_.data(), rows, DType::i32), id_view(rows), *context_.stream);
    device.copy(View::vector(positions_.data(), rows, DType::i32), position_view(rows), *context_.stream);
    forward(context_, true);
    if (const std::int64_t n = ends(); n > 0 && has_logits()) {
      const auto first = std::ranges::find_if(segments_, [](const Segment& s) { return s.part != kNoLogits; })->part;
      device.copy(View::matrix(logits_.data(), n, shape_.vocab, DType::f32).col_range(0, columns_),
                  View::matrix(logits.data() + first * columns_, n, columns_, DType::f32), *context_.stream);
    }
    device.wait(*context_.stream);
  }

  /// Segments whose logits are wanted; their parts follow one another.
  std::int64_t ends() const {
    return std::ranges::count_if(segments_, [](const Segment& segment) { return segment.part != kNoLogits; });
  }

  View id_view(std::int64_t rows) const { return View::vector(id_memory_.data(), rows, DType::i32); }
  View position_view(std::int64_t rows) const {
    return View::vector(id_memory_.data() + aligned(ids_.size() * sizeof(std::int32_t)), rows, DType::i32);
  }

  enum class Half : std::uint8_t { keys, values };
  /// [length, head_dim] of one head of one sequence in the cache.
  View cached(Half half, int layer, int sequence, std::int64_t head) const {
    const auto sequences = static_cast<std::int64_t>(lengths_.size());
    const std::int64_t own = 2 * cache_index_[static_cast<std::size_t>(layer)] + (half == Half::values ? 1 : 0);
    const std::int64_t at =
        ((own * sequences + sequence) * context_.own_heads + head) * max_length_ * shape_.head_dim();
    return View::matrix(cache_.data() + static_cast<std::size_t>(at) * size_of(context_.working), max_length_,
                        shape_.head_dim(), context_.working);
  }

  AttentionOperand cache_operand(Half half, int layer, int sequence) const {
    return {cached(half, layer, sequence, 0).data, 0, shape_.head_dim(), max_length_ * shape_.head_dim()};
  }

  /// Keys and values of the new tokens go into the cache, then every new token attends to all of its sequence.
  void attend(const ModelContext& context, int layer, const Segment& segment, const View& qkv,
              const View& attended) const {
    const std::int64_t head_dim = shape_.head_dim();
    const View rows = qkv.row_range(segment.first_row, segment.first_row + segment.count);
    for (std::int64_t head = 0; head < context.own_heads; ++head) {
      const std::int64_t column = head * 3 * head_dim;
      const auto store = [&](Half half, std::int64_t from) {
        context.device->copy(
            rows.col_range(from, from + head_dim),
            cached(half, layer, segment.sequence, head).row_range(segment.length, segment.length + segment.count),
            *context.stream);
      };
      store(Half::keys, column + head_dim);
      store(Half::values, column + 2 * head_dim);
    }
    Attention args;
    args.q = {rows.data, 0, rows.row_stride, 3 * head_dim};
    args.k = cache_operand(Half::keys, layer, segment.sequence);
    args.v = cache_operand(Half::values, layer, segment.sequence);
    args.out = {attended.at(segment.first_row, 0), 0, attended.row_stride, head_dim};
    args.dtype = context.working;
    args.batch = 1;
    args.heads = context.own_heads;
    args.head_dim = head_dim;
    args.queries = segment.count;
    args.first_query = segment.length;
    args.keys = segment.length + segment.count;
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    args.slopes = context.slopes;
    context.kernels.attention->forward(args, *context.stream);
  }

  void block(const ModelContext& context, const Tokens& tokens, int layer, const View& stream_rows) const {
    const BlockParameters& parameters = roles_.blocks[static_cast<std::size_t>(layer)];
    BlockInputs inputs;
    BlockSaved saved;
    Temporary inputs_memory(*context.arena, inputs.carve(context, tokens, nullptr));
    Temporary saved_memory(*context.arena, saved.carve(context, tokens, nullptr));
    inputs.carve(context, tokens, inputs_memory.data());
    saved.carve(context, tokens, saved_memory.data());
    context.data->acquire(layer, Need::all, *context.stream);
    attention_projection(context, tokens, parameters.attention, stream_rows, inputs.attention_normed, saved.attention);
    for (const Segment& segment : segments_) attend(context, layer, segment, saved.attention.qkv, inputs.attended);
    attention_output(context, tokens, layer, parameters.attention, stream_rows, inputs.attended, saved.middle);
    mlp_forward(context, tokens, layer, parameters.mlp, saved.middle, inputs.mlp_normed, inputs.activated, saved.mlp,
                stream_rows);
    context.data->release(layer, Need::all);
  }

  void head(const ModelContext& context, const View& stream_rows) const {
    const std::int64_t n = ends();
    if (n == 0) return;
    const std::int64_t hidden = shape_.hidden;
    const std::size_t element = size_of(context.working);
    Stream& stream = *context.stream;
    Temporary last_memory(*context.arena, static_cast<std::size_t>(2 * n * hidden) * element);
    const View last = last_memory.matrix(n, hidden, context.working);
    const View normed =
        View::matrix(last_memory.data() + static_cast<std::size_t>(n * hidden) * element, n, hidden, context.working);
    std::int64_t at = 0;
    for (const Segment& segment : segments_) {
      if (segment.part == kNoLogits) continue;
      const std::int64_t row = segment.first_row + segment.count - 1;
      context.device->copy(stream_rows.row_range(row, row + 1), last.row_range(at, at + 1), stream);
      ++at;
    }
    const HeadParameters& parameters = roles_.head;
    const int layer = static_cast<int>(shape_.layers) + 1;
    context.data->acquire(layer, Need::all, stream);
    if (parameters.weight_layer != layer) context.data->acquire(parameters.weight_layer, Need::tables, stream);
    norm_forward(context, last, parameters.norm_weight, parameters.norm_bias, {}, {}, normed);
    // Own columns into a table of zeros; the sum over the tensor group completes it.
    const View table = View::matrix(logits_.data(), n, shape_.vocab, DType::f32);
    context.device->fill_zero(table, stream);
    const View weight = context.weight(parameters.weight);
    Temporary own_memory(*context.arena, static_cast<std::size_t>(n * weight.rows) * sizeof(float));
    const View own = own_memory.matrix(n, weight.rows, DType::f32);
    linear(context, normed, parameters.weight, {}, own);
    if (parameters.valid > 0) {
      context.device->copy(own.col_range(0, parameters.valid),
                           table.col_range(parameters.first_id, parameters.first_id + parameters.valid), stream);
    }
    context.tensor->finish(context.tensor->reduce(table, Reduce::sum_rank_order, stream), stream);
    if (parameters.weight_layer != layer) context.data->release(parameters.weight_layer, Need::tables);
    context.data->release(layer, Need::all);
  }

  void embedding(const ModelContext& context, const Tokens& tokens, const View& stream_rows) const {
    EmbeddingSaved saved;
    Temporary saved_memory(*context.arena, saved.carve(context, tokens, nullptr));
    saved.carve(context, tokens, saved_memory.data());
    context.data->acquire(0, Need::all, *context.stream);
    embedding_forward(context, tokens, roles_.embedding, id_view(tokens.seq), position_view(tokens.seq), saved,
                      stream_rows);
    context.data->release(0, Need::all);
  }

  /// From the stage that holds the part before; nothing to do where that is this one.
  void receive(const View& stream_rows) {
    if (stages() == 1) return;
    Communicator& group = *setup_.pipeline;
    const int peer = (stage() + stages() - 1) % stages();
    group.finish(group.start_receive(stream_rows.flat(), peer, 0, *context_.stream), *context_.stream);
  }

  /// To the stage that holds the next part. The rows are on their way from memory of their own, so that this stage goes
  /// on.
  void send(const View& stream_rows) {
    if (stages() == 1) return;
    finish();
    const View message = View::matrix(outgoing_.data(), stream_rows.rows, stream_rows.cols, context_.working);
    context_.device->copy(stream_rows, message, *context_.stream);
    sent_ = setup_.pipeline->start_send(message.flat(), (stage() + 1) % stages(), 0, *context_.stream);
  }

  /// @param real  false: only the arena moves.
  void forward(const ModelContext& context, bool real) {
    Tokens tokens;
    tokens.samples = 1;
    tokens.seq = segments_.back().first_row + segments_.back().count;
    tokens.inside = tokens.outside = tokens.seq;
    tokens.training = false;
    Temporary stream_memory(*context.arena,
                            static_cast<std::size_t>(tokens.seq * shape_.hidden) * size_of(context.working));
    const View stream_rows = stream_memory.matrix(tokens.seq, shape_.hidden, context.working);
    for (const LayerRange& part : parts_) {
      if (part.contains(0)) {
        embedding(context, tokens, stream_rows);
      } else if (real) {
        receive(stream_rows);
      }
      for (int layer = std::max(part.first, 1); layer < std::min(part.end, head_layer()); ++layer) {
        block(context, tokens, layer, stream_rows);
      }
      if (part.contains(head_layer())) {
        head(context, stream_rows);
      } else if (real) {
        send(stream_rows);
      }
    }
  }

  DecoderSetup setup_;
  const ModelShape& shape_;
  std::int64_t max_length_;
  std::int64_t prompt_block_;
  ModelContext context_;
  DeviceMemory slopes_;
  Arena arena_;
  RolePositions roles_;
  std::vector<LayerRange> parts_;
  std::vector<std::int64_t> cache_index_;  // [layers + 2]: -1 where another stage holds the block
  std::int64_t columns_ = 0;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> lengths_;
  std::vector<Segment> segments_;
  std::vector<std::int32_t> ids_, positions_;
  DeviceMemory cache_, id_memory_, logits_, outgoing_;
  Request sent_;
};

Decoder::Decoder(const DecoderSetup& setup, int sequences, std::int64_t max_length, std::int64_t prompt_block)
    : impl_(std::make_unique<Impl>(setup, sequences, max_length, std::min(prompt_block, max_length))) {}
Decoder::~Decoder() = default;

bool Decoder::has_logits() const { return impl_->has_logits(); }
std::int64_t Decoder::columns() const { return impl_->columns(); }
int Decoder::sequences() const { return impl_->sequences(); }
std::int64_t Decoder::length(int sequence) const { return impl_->length(sequence); }
void Decoder::reset(int sequence) { impl_->reset(sequence); }
void Decoder::extend(std::span<const Part> parts, std::span<float> logits,
                     FunctionRef<void(std::size_t, std::int64_t)> read) {
  impl_->extend(parts, logits, read);
}
void Decoder::extend(std::span<const Part> parts, std::span<float> logits) {
  impl_->extend(parts, logits, [](std::size_t, std::int64_t) {});
}
void Decoder::extend(int sequence, std::span<const std::int32_t> tokens, std::span<float> logits) {
  const Part part{sequence, tokens};
  extend(std::span(&part, 1), logits);
}
void Decoder::finish() { impl_->finish(); }

}  // namespace espalier::app
