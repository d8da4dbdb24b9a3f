#include "sample_set.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

const char* split_word(Split split) {
  return split == Split::train ? "training" : split == Split::valid ? "validation" : "test";
}

}  // namespace

BlendedSet::BlendedSet(const SetOptions& set, const DataOptions& options, const Request& request)
    : name_(set.name),
      split_(set.split),
      sampling_(options.rules.sampling),
      weighted_(set.weighted),
      wanted_(request.wanted),
      pad_id_(options.pad_id) {
  std::vector<double> weights;
  for (const PartOptions& part : set.parts) {
    weights.push_back(part.weight);
  }
  const std::vector<double> normalised =
      sampling_ == Sampling::megatron_core ? core_weights(weights) : normalised_weights(weights);
  const std::vector<std::int64_t> asked =
      set.parts.size() > 1 ? samples_of_parts(normalised) : std::vector<std::int64_t>{wanted_};
  SampleRules rules = options.rules;
  rules.keep_partial = rules.keep_partial && split_ == Split::valid;  // the only split that core keeps it in
  for (std::size_t k = 0; k < set.parts.size(); ++k) {
    const PartOptions& part = set.parts[k];
    const auto same_path = [&](const PartOptions& other) { return other.path == part.path; };
    std::string name = name_;
    if (std::count_if(set.parts.begin(), set.parts.end(), same_path) > 1) {
      // The peer's file names leave the range out: two ranges of one file in one set would share their arrays.
      name += "_" + number(request.ranges[k].begin) + "-" + number(request.ranges[k].end);
    }
    parts_.push_back({part,
                      request.files[k],
                      normalised[k],
                      IndexRequest{request.files[k], options.cache_folder, name, request.ranges[k], asked[k],
                                   request.seq_length, request.seed, rules},
                      {}});
  }
  if (positions_ > 0) {
    blend_ = {sampling_ == Sampling::bigscience ? renormalised_weights(normalised) : normalised, positions_,
              cache_stem(set.parts[0].path, options.cache_folder) + "_" + name_};
  }
}

std::vector<std::int64_t> BlendedSet::samples_of_parts(const std::vector<double>& weights) {
  if (wanted_ == 0 || !weighted_) {
    return std::vector<std::int64_t>(weights.size(), 0);  // one epoch of each
  }
  if (sampling_ == Sampling::bigscience) {
    positions_ = wanted_;
    return samples_asked(weights, wanted_);
  }
  const std::vector<std::int64_t> targets = core_targets(weights, wanted_);
  positions_ = std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
  return core_requests(targets);
}

std::string BlendedSet::too_short(std::int64_t needed) const {
  for (const SetPart& part : parts_) {
    const SequenceRange& range = part.request.range;
    const std::int64_t tokens = range.count() > 0 ? tokens_of(part.request) : 0;
    if (tokens < needed) {
      const bool own_name = name_ != "train" && name_ != "valid" && name_ != "test";
      // "documents" where one sequence is one document, the word users know.
      const std::string unit = unit_of(*part.file);
      return std::string(split_word(split_)) + " split" + (own_name ? " " + name_ : "") + ": " + number(range.count()) +
             " " + unit + ", " + number(tokens) + " tokens, needs " + number(needed) + " (" + part.file->prefix() +
             ", " + unit + " " + number(range.begin) + " to " + number(range.end) + ")";
    }
  }
  return {};
}

void BlendedSet::map(std::int64_t token_limit) {
  for (SetPart& part : parts_) {
    part.reader.emplace(*part.file, load_index(part.request), token_limit, pad_id_);
    starts_.push_back(samples_);
    samples_ += part.reader->samples();
  }
  if (parts_.size() > 1 && (wanted_ > 0 || !weighted_)) {
    make_order();
    samples_ = order_->positions();
  } else if (wanted_ > 0) {
    samples_ = wanted_;
  }
}

void BlendedSet::make_order() {
  std::vector<double> weights = blend_.weights;
  std::vector<std::int64_t> lengths;
  for (const SetPart& part : parts_) {
    lengths.push_back(part.reader->samples());
  }
  if (!weighted_) {  // core: the lengths are the weights
    const std::int64_t all = samples_;
    std::vector<double> sizes(lengths.begin(), lengths.end());
    weights = core_weights(sizes);
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      parts_[k].normalised_weight = weights[k];
    }
    if (wanted_ == 0) {
      order_.emplace(BlendOrder::exhaustive(lengths));
      return;
    }
    if (split_ == Split::train && all < wanted_) {
      fail_config("data", "the blend of set \"" + name_ + "\" has " + number(all) + " samples, each once, but " +
                              number(wanted_) + " are wanted; give its entries weights, so that they are repeated");
    }
    positions_ = std::min(wanted_, all);
  }
  if (blend_request() != nullptr) {
    std::string why;
    order_ = open_blend(blend_, why);
    if (!order_) {
      fail_io(blend_.stem, "the order of the blend cannot be used although it was there a moment ago: " + why);
    }
  } else {
    order_.emplace(weights, positions_);
  }
  const std::vector<std::int64_t> counts = order_->counts();
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const std::int64_t used = counts[k];
    if (used > lengths[k]) {
      fail_config("data", "the blend of set \"" + name_ + "\" takes " + number(used) + " samples of " +
                              parts_[k].file->prefix() + ", which was built with " + number(lengths[k]) +
                              "; raise its weight a little");
    }
  }
}

BlendedSet::Location BlendedSet::locate(std::int64_t index) const {
  if (order_) {
    return {&parts_[static_cast<std::size_t>(order_->part(index))], order_->sample(index)};
  }
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), index);
  const auto part = static_cast<std::size_t>(after - starts_.begin()) - 1;
  return {&parts_[part], index - starts_[part]};
}

void BlendedSet::add_to(Fingerprint& hash) const {
  if (sampling_ == Sampling::megatron_core) {
    hash.add(parts_[0].request.rules.extra_token ? 1 : 0);
    hash.add(static_cast<std::uint64_t>(pad_id_));
  }
  for (const SetPart& part : parts_) {
    const EpochPlan& plan = part.reader->arrays().plan();
    hash.add(part.file->fingerprint());
    hash.add(std::bit_cast<std::uint64_t>(part.normalised_weight));
    for (const std::int64_t value : {part.request.range.begin, part.request.range.end, plan.epochs,
                                     plan.samples_before_last, std::int64_t{part.request.seed}}) {
      hash.add(static_cast<std::uint64_t>(value));
    }
  }
}

}  // namespace espalier::data_indexed
