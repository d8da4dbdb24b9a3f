#include "dataset.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <set>

#include "fail.hpp"
#include "fingerprint.hpp"

namespace espalier::data_indexed {
namespace {

/// Runs one phase of the creation on every rank; what one rank throws, all throw.
template <typename Phase>
void together(Communicator& world, const Phase& phase) {
  if (world.size() == 1) {
    phase();
    return;
  }
  ExitCode code = ExitCode::ok;
  std::string problem;
  try {
    phase();
  } catch (const Error& error) {
    code = error.exit_code();
    problem = error.what();
  } catch (const std::exception& error) {
    code = ExitCode::internal;
    problem = std::string("data: ") + error.what();
  }
  agree(world, static_cast<int>(code), problem);
}

bool evaluates(const RunFacts& facts) { return facts.batch.eval_interval > 0 || facts.batch.eval_runs > 0; }

// Every evaluation reads the same samples, from the first on: more of them would only mix epochs into those.
std::int64_t samples_wanted(Split split, const RunFacts& facts) {
  return split == Split::train ? facts.batch.train_samples : facts.batch.eval_samples;
}

const char* split_word(Split split) {
  return split == Split::train ? "training" : split == Split::valid ? "validation" : "test";
}

/// "documents" where one sequence is one document, the word users know.
const char* unit_of(const IndexedFile& file) {
  return file.documents() == file.sequences() ? "documents" : "sequences";
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::string decimal(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

IndexedDataset::IndexedDataset(const ConfigView& config, HostContext& host, std::function<void()> before_rename)
    : seq_length_(host.facts().model.seq_length) {
  Communicator& world = host.communicator(Group::world);
  const RunFacts& facts = host.facts();
  main_rank_ = world.rank() == 0;
  together(world, [&] {
    if (seq_length_ < 1) {
      fail_config("model.seq_length", "is " + number(seq_length_) + "; samples need at least 1 token");
    }
    plan_sets(parse_options(config, facts), facts, host);
    warn_of_overlap(host);
  });
  together(world, [&] {
    if (main_rank_) {
      ensure_indices(host, before_rename);
    }
  });
  if (world.size() > 1) {  // on a shared disk this finds what rank 0 built; on a disk of its own the host builds again
    together(world, [&] {
      if (!main_rank_ && detect_launch().local_rank == 0) {
        ensure_indices(host, before_rename);
      }
    });
  }
  together(world, [&] { map_indices(facts); });
  if (main_rank_) {
    log_table(host);
  }
}

void IndexedDataset::plan_sets(const DataOptions& options, const RunFacts& facts, HostContext& host) {
  if (!options.split) {
    for (const SetOptions& set : options.sets) {
      std::vector<SequenceRange> ranges;
      for (const PartOptions& part : set.parts) {
        ranges.push_back(range_of(part.range, file(part.path, host).sequences()));
      }
      add_set(set, ranges, options, facts, host);
    }
    return;
  }
  const auto shares = parse_split(*options.split);
  std::array<std::vector<SequenceRange>, 3> ranges;
  for (const PartOptions& part : options.sets[0].parts) {
    const auto cut = split_ranges(*options.split, file(part.path, host).sequences());
    for (std::size_t k = 0; k < 3; ++k) {
      ranges[k].push_back(cut[k]);
    }
  }
  const std::pair<const char*, Split> names[] = {
      {"train", Split::train}, {"valid", Split::valid}, {"test", Split::test}};
  for (std::size_t k = 0; k < 3; ++k) {
    if (k == 0 || shares[k] > 0.0) {
      add_set({names[k].first, names[k].second, options.sets[0].parts}, ranges[k], options, facts, host);
    }
  }
}

const IndexedFile& IndexedDataset::file(const std::string& prefix, HostContext& host) {
  for (const auto& opened : files_) {
    if (opened->prefix() == prefix) {
      return *opened;
    }
  }
  files_.push_back(std::make_unique<IndexedFile>(IndexedFile::open(prefix)));
  const IndexedFile& opened = *files_.back();
  if (!is_integer(opened.type())) {
    fail_io(prefix + ".idx", "holds " + std::string(type_name(opened.type())) + " values; training needs token ids");
  }
  if (main_rank_) {
    for (const std::string& warning : opened.warnings()) {
      host.log(LogLevel::warning, warning);
    }
  }
  return opened;
}

void IndexedDataset::add_set(const SetOptions& options, const std::vector<SequenceRange>& ranges,
                             const DataOptions& all, const RunFacts& facts, HostContext& host) {
  Set set{options.name, options.split, samples_wanted(options.split, facts), {}, {}, {}};
  std::vector<double> weights;
  for (const PartOptions& part : options.parts) {
    weights.push_back(part.weight);
  }
  const std::vector<double> normalised = normalised_weights(weights);
  const bool blended = options.parts.size() > 1 && set.wanted > 0;
  const std::vector<std::int64_t> asked =
      blended ? samples_asked(normalised, set.wanted) : std::vector<std::int64_t>(options.parts.size(), set.wanted);

  std::string problem;
  for (std::size_t k = 0; k < options.parts.size(); ++k) {
    const PartOptions& part = options.parts[k];
    const IndexedFile& data = file(part.path, host);
    const auto same_path = [&](const PartOptions& other) { return other.path == part.path; };
    std::string name = options.name;
    if (std::count_if(options.parts.begin(), options.parts.end(), same_path) > 1) {
      // The peer's file names leave the range out: two ranges of one file in one set would share their arrays.
      name += "_" + number(ranges[k].begin) + "-" + number(ranges[k].end);
    }
    const std::int64_t tokens = data.tokens_in(ranges[k].begin, ranges[k].end);
    // Training repeats a part that is shorter than one sample; to measure on such repetitions would mean nothing.
    const std::int64_t needed = options.split == Split::train ? 1 : seq_length_ + 1;
    if (tokens < needed && problem.empty()) {
      problem =
          std::string(split_word(options.split)) + " split" +
          (options.name == "train" || options.name == "valid" || options.name == "test" ? "" : " " + options.name) +
          ": " + number(ranges[k].count()) + " " + unit_of(data) + ", " + number(tokens) + " tokens, needs " +
          number(needed) + " (" + data.prefix() + ", " + unit_of(data) + " " + number(ranges[k].begin) + " to " +
          number(ranges[k].end) + ")";
    }
    set.parts.push_back({part,
                         &data,
                         normalised[k],
                         IndexRequest{&data, all.cache_folder, name, ranges[k], asked[k], seq_length_, all.seed},
                         {}});
  }
  if (!problem.empty()) {
    const bool optional = options.split == Split::test ? all.split.has_value() : !evaluates(facts);
    if (options.split == Split::train || !optional) {
      fail_config("data", problem + "; use more text, a larger share, or leave the set out");
    }
    if (main_rank_) {
      host.log(LogLevel::info, problem + "; the run goes on without this set");
    }
    return;
  }
  sets_.push_back(std::move(set));
}

void IndexedDataset::warn_of_overlap(HostContext& host) const {
  for (const Set& set : sets_) {
    for (const Part& held_out : set.parts) {
      for (const Part& trained : sets_[0].parts) {
        const SequenceRange& a = held_out.request.range;
        const SequenceRange& b = trained.request.range;
        if (set.split != Split::train && main_rank_ && held_out.file == trained.file && a.begin < b.end &&
            b.begin < a.end) {
          host.log(LogLevel::warning, "set \"" + set.name + "\" reads sequences " + number(std::max(a.begin, b.begin)) +
                                          " to " + number(std::min(a.end, b.end)) + " of " + held_out.file->prefix() +
                                          " that are trained on as well; give both sets ranges that do not meet");
        }
      }
    }
  }
}

void IndexedDataset::ensure_indices(HostContext& host, const std::function<void()>& before_rename) const {
  for (const Set& set : sets_) {
    for (const Part& part : set.parts) {
      const CacheFiles files = cache_files(part.request);
      const auto why = why_not_cached(part.request);
      if (!why) {
        if (main_rank_) {
          host.log(LogLevel::info, "index cache used: " + files.check);
        }
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      const int bits = store_index(part.request, before_rename);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      host.log(LogLevel::info, "index cache built in " + decimal(seconds.count(), "%.3f") + " s, " + number(bits) +
                                   "-bit positions: " + files.check + " (" + *why + ")");
    }
  }
}

void IndexedDataset::map_indices(const RunFacts& facts) {
  for (Set& set : sets_) {
    std::vector<double> normalised;
    std::int64_t total = 0;
    for (Part& part : set.parts) {
      part.reader.emplace(*part.file, load_index(part.request), facts.model.tokenizer_vocab);
      normalised.push_back(part.normalised_weight);
      set.starts.push_back(total);
      total += part.reader->samples();
    }
    if (set.wanted > 0) {
      total = set.wanted;
      if (set.parts.size() > 1) {
        set.order.emplace(renormalised_weights(normalised), set.wanted);
        for (std::size_t k = 0; k < set.parts.size(); ++k) {
          const std::int64_t used = set.order->counts()[k];
          if (used > set.parts[k].reader->samples()) {
            fail_config("data", "the blend of set \"" + set.name + "\" takes " + number(used) + " samples of " +
                                    set.parts[k].file->prefix() + ", which was built with " +
                                    number(set.parts[k].reader->samples()) + "; raise its weight a little");
          }
        }
      }
    }
    sample_sets_.push_back({set.name, set.split, total});
  }

  Fingerprint hash;
  hash.add("data_indexed bigscience 1");
  hash.add(static_cast<std::uint64_t>(seq_length_));
  const Set& train = sets_.front();
  for (const Part& part : train.parts) {
    const EpochPlan& plan = part.reader->arrays().plan();
    hash.add(part.file->fingerprint());
    hash.add(std::bit_cast<std::uint64_t>(part.normalised_weight));
    for (const std::int64_t value : {part.request.range.begin, part.request.range.end, plan.epochs,
                                     plan.samples_before_last, std::int64_t{part.request.seed}}) {
      hash.add(static_cast<std::uint64_t>(value));
    }
  }
  fingerprint_ = hash.value();
}

void IndexedDataset::log_table(HostContext& host) const {
  std::size_t width = 4;
  for (const Set& set : sets_) {
    for (const Part& part : set.parts) {
      width = std::max(width, part.file->prefix().size());
    }
  }
  const auto row = [&](const std::vector<std::string>& cells) {
    std::string line = cells[0] + std::string(width - cells[0].size(), ' ');
    for (std::size_t k = 1; k < cells.size(); ++k) {
      constexpr std::size_t kCell = 12;
      line += std::string(kCell > cells[k].size() ? kCell - cells[k].size() : 1, ' ') + cells[k];
    }
    host.log(LogLevel::info, line);
  };
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    const Set& set = sets_[s];
    const std::string summary = "set \"" + set.name + "\": " + number(sample_sets_[s].samples) + " samples of " +
                                number(seq_length_) + " + 1 tokens";
    if (set.split != Split::train &&
        set.parts.size() == 1) {  // the usual validation set of one language: a line, no table
      const Part& part = set.parts.front();
      host.log(LogLevel::info, summary + " from " + part.file->prefix() + " (" + number(part.request.range.count()) +
                                   " " + unit_of(*part.file) + ", " +
                                   number(part.reader->arrays().plan().tokens_per_epoch) + " tokens)");
      continue;
    }
    host.log(LogLevel::info, summary + (set.parts.size() == 1 ? ""
                                        : set.order           ? ", blended by weight (shares of samples)"
                                                              : ", every part once, one after another"));
    row({"path", "weight", "normalised", "first", "end", unit_of(*set.parts[0].file), "tokens", "requested", "built",
         "epochs"});
    for (const Part& part : set.parts) {
      const EpochPlan& plan = part.reader->arrays().plan();
      const double share = set.wanted > 0
                               ? static_cast<double>(part.request.samples_wanted) * static_cast<double>(seq_length_) /
                                     static_cast<double>(plan.tokens_per_epoch)
                               : 1.0;
      row({part.file->prefix(), decimal(part.options.weight, "%g"), decimal(part.normalised_weight, "%.6f"),
           number(part.request.range.begin), number(part.request.range.end), number(part.request.range.count()),
           number(plan.tokens_per_epoch), number(part.request.samples_wanted), number(plan.samples),
           decimal(share, "%.3f")});
    }
  }
}

IndexedDataset::Location IndexedDataset::locate(int set, std::int64_t index) const {
  if (set < 0 || static_cast<std::size_t>(set) >= sets_.size() || index < 0 ||
      index >= sample_sets_[static_cast<std::size_t>(set)].samples) {
    fail_io(sets_.front().parts.front().file->prefix(), "there is no sample " + number(index) + " in set " +
                                                            number(set) + " of " +
                                                            number(static_cast<std::int64_t>(sets_.size())) + " sets");
  }
  const Set& chosen = sets_[static_cast<std::size_t>(set)];
  if (chosen.order) {
    return {&chosen.parts[static_cast<std::size_t>(chosen.order->part(index))], chosen.order->sample(index)};
  }
  const auto after = std::upper_bound(chosen.starts.begin(), chosen.starts.end(), index);
  const auto part = static_cast<std::size_t>(after - chosen.starts.begin()) - 1;
  return {&chosen.parts[part], index - chosen.starts[part]};
}

void IndexedDataset::read(int set, std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t>) const {
  const Location at = locate(set, index);
  at.part->reader->read(at.sample, tokens);
}

SampleOrigin IndexedDataset::origin(int set, std::int64_t index) const {
  const Location at = locate(set, index);
  return {at.part->file->prefix(), at.sample};
}

}  // namespace espalier::data_indexed
