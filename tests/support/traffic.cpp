#include "support/traffic.hpp"

#include <algorithm>

namespace espalier::testing_support {
namespace {

/// What of the model is on this rank.
struct Share {
  std::int64_t blocks = 0, sends = 0, receives = 0;  ///< messages of a micro-batch
  bool embedding = false, head = false;
};

Share share_of(const TrafficFacts& facts) {
  Share share;
  const int last = static_cast<int>(facts.model.layers) + 1;
  for (const app::LayerRange& part : facts.parts) {
    share.embedding |= part.contains(0);
    share.head |= part.contains(last);
    share.blocks += part.end - part.first - (part.contains(0) ? 1 : 0) - (part.contains(last) ? 1 : 0);
    // Activations to the next part, gradients to the one before.
    if (!part.contains(last)) ++share.sends, ++share.receives;
    if (!part.contains(0)) ++share.sends, ++share.receives;
  }
  return share;
}

/// Whole on every tensor rank, by blocks and ends: norms and the biases of row-parallel maps.
std::int64_t whole_elements(const TrafficFacts& facts, const Share& share) {
  const std::int64_t h = facts.model.hidden;
  const std::int64_t norms =
      4 * h * share.blocks + (share.head ? 2 * h : 0) + (share.embedding && facts.model.embedding_norm ? 2 * h : 0);
  return norms + 2 * h * share.blocks + (share.embedding ? facts.model.positions * h : 0);
}

std::int64_t vocabulary_elements(const TrafficFacts& facts) {
  return facts.model.vocab * facts.model.hidden / facts.grid.tensor;
}

/// Elements that stage 3 gathers once for a micro-batch, not twice: the head does forward and backward in one use, and
/// the embedding's backward reads no table. A tied table on one stage is used by both.
std::int64_t gathered_once(const TrafficFacts& facts) {
  const Share share = share_of(facts);
  std::int64_t elements = share.head ? 2 * facts.model.hidden : 0;
  if (facts.model.tied_head && share.embedding && share.head) return elements;
  if (share.embedding) elements += vocabulary_elements(facts) + facts.model.positions * facts.model.hidden;
  if (share.head) elements += vocabulary_elements(facts);
  return elements;
}

void add_data_traffic(const TrafficFacts& facts, Traffic& traffic) {
  const std::int64_t d = facts.grid.data, m = facts.micro_batches, g = facts.reduced_bytes, w = facts.working_bytes;
  const std::int64_t one_way = rank_parameters(facts) * (d - 1) / d;  // elements
  switch (facts.zero) {
    case 0:
      traffic.data_gradients = 2 * one_way * g;
      break;
    case 1:
    case 2:
      traffic.data_gradients = (facts.zero == 1 || facts.reduce_per_step ? 1 : m) * one_way * g;
      traffic.data_weights = one_way * w;
      break;
    default:  // a gather for the forward and one for the backward pass of every micro-batch
      traffic.data_gradients = m * one_way * g;
      traffic.data_weights = m * (2 * one_way - gathered_once(facts) * (d - 1) / d) * w;
  }
}

}  // namespace

std::int64_t rank_parameters(const TrafficFacts& facts) {
  const Share share = share_of(facts);
  const std::int64_t h = facts.model.hidden, ffn = facts.model.ffn, t = facts.grid.tensor;
  const std::int64_t split = 4 * h * h + 3 * h + 2 * h * ffn + ffn;
  std::int64_t count = share.blocks * split / t + whole_elements(facts, share);
  if (share.embedding) count += vocabulary_elements(facts);
  if (share.head && !(share.embedding && facts.model.tied_head)) count += vocabulary_elements(facts);
  return count;
}

Traffic expected_traffic(const TrafficFacts& facts) {
  const Share share = share_of(facts);
  const std::int64_t t = facts.grid.tensor, m = facts.micro_batches, w = facts.working_bytes;
  const std::int64_t tokens = facts.micro * facts.model.seq_length;
  const std::int64_t pass =
      tokens * facts.model.hidden * (t - 1) / t * w;  // a gather or a reduce-scatter; a sum is two
  const bool sp = facts.sequence_parallel && t > 1;
  Traffic traffic;
  traffic.tensor_blocks = share.blocks * m * 4 * 2 * pass;
  if (facts.recompute == app::Recompute::full) traffic.tensor_recompute = share.blocks * m * (sp ? 3 : 2) * pass;
  if (sp) traffic.tensor_regather = share.blocks * m * 2 * pass;
  const std::int64_t loss = 3 * 2 * 4 * tokens * (t - 1) / t;
  traffic.tensor_vocabulary = m * ((share.embedding ? 2 * pass : 0) + (share.head ? 2 * pass + loss : 0));
  const std::int64_t shards = facts.zero == 0 ? 1 : facts.grid.data;
  if (sp) traffic.tensor_partial = 2 * 4 * whole_elements(facts, share) / shards * (t - 1) / t;

  const std::int64_t message = tokens * facts.model.hidden * w;
  const bool parts = facts.scatter_gather || sp;
  traffic.pipeline = share.sends * m * message / (parts ? t : 1);
  if (facts.scatter_gather && !sp) traffic.tensor_messages = share.receives * m * pass;
  const bool tied = facts.model.tied_head && facts.grid.pipeline > 1 && (share.embedding || share.head);
  if (tied) traffic.tied = 4 * vocabulary_elements(facts) / shards;

  add_data_traffic(facts, traffic);
  const std::int64_t world = facts.grid.world();
  const std::int64_t parameters = 12 * facts.model.layers + 3 + (facts.model.embedding_norm ? 2 : 0) +
                                  (facts.model.tied_head ? 0 : 1) + (facts.model.positions > 0 ? 1 : 0);
  traffic.verdict = 2 * 8 * (parameters + 2) * (world - 1) / world;
  return traffic;
}

std::int64_t counted_bytes(const app::CommCounters& counters, std::string_view group) {
  std::int64_t bytes = 0;
  for (const app::CommTotal& row : counters.totals()) {
    if (row.group == group) bytes += row.bytes;
  }
  return bytes;
}

std::int64_t counted_bytes(const app::CommCounters& counters, std::string_view group, Verb verb) {
  std::int64_t bytes = 0;
  for (const app::CommTotal& row : counters.totals()) {
    if (row.group == group && row.verb == verb) bytes += row.bytes;
  }
  return bytes;
}

}  // namespace espalier::testing_support
