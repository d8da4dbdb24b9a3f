#include <fmt/format.h>

#include "config/checks.hpp"

namespace espalier::app {

namespace {

template <class Enum>
Enum index_of(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return Enum{};
}

}  // namespace

void fill_rate(Tables& tables, Recipe& recipe) {
  RateSpec& rate = recipe.train.rate;
  rate.lr = tables.number("train.lr");
  rate.min_lr = tables.number("train.min_lr");
  rate.decay = index_of<RateDecay>(tables.string("train.lr_decay_style", "cosine"), 5);
  rate.warmup_samples = tables.integer("train.lr_warmup_samples");
  rate.decay_samples = tables.integer("train.lr_decay_samples", recipe.train.train_samples);
  rate.wsd_decay_samples = tables.integer("train.lr_wsd_decay_samples");
  rate.wsd_decay = index_of<WsdDecay>(tables.string("train.lr_wsd_decay_style", "linear"), 4);

  if (tables.has("train.lr") && tables.has("train.min_lr") && rate.min_lr > rate.lr) {
    tables.complain("train.min_lr", fmt::format("{:g} is above the peak: lr is {:g}", rate.min_lr, rate.lr));
  }
  const bool decays = rate.decay != RateDecay::constant;
  if (!decays) {
    for (const char* key : {"train.min_lr", "train.lr_decay_samples"}) {
      if (tables.given(key)) tables.complain(key, "lr_decay_style = \"constant\" does not use it; leave it out");
    }
  }
  const bool wsd = rate.decay == RateDecay::wsd;
  if (!wsd && tables.has("train.lr_decay_style")) {
    for (const char* key : {"train.lr_wsd_decay_samples", "train.lr_wsd_decay_style"}) {
      if (tables.given(key)) tables.complain(key, "only lr_decay_style = \"wsd\" uses it; leave it out");
    }
  }
  const bool lengths = rate.decay_samples > 0 && tables.has("train.lr_warmup_samples");
  if (decays && lengths && rate.warmup_samples >= rate.decay_samples) {
    tables.complain(
        "train.lr_warmup_samples",
        fmt::format("{} leaves nothing to decay: {} is {}; lr_decay_samples counts from the start of the run, "
                    "warm-up included",
                    rate.warmup_samples,
                    tables.given("train.lr_decay_samples") ? "lr_decay_samples" : "the length of the run",
                    rate.decay_samples));
  }
  if (wsd && tables.find("train.lr_wsd_decay_samples") == nullptr) {
    tables.complain("train.lr_decay_style", "\"wsd\" needs lr_wsd_decay_samples, the length of its last phase");
  } else if (wsd && lengths && rate.wsd_decay_samples > rate.decay_samples - rate.warmup_samples) {
    tables.complain("train.lr_wsd_decay_samples",
                    fmt::format("{} is longer than what lies between warm-up {} and end {}", rate.wsd_decay_samples,
                                rate.warmup_samples, rate.decay_samples));
  }
  if (recipe.train.train_samples > 0) {
    for (std::string& warning : warnings(rate, recipe.train.train_samples)) recipe.warnings.push_back(std::move(warning));
  }
}

}  // namespace espalier::app
