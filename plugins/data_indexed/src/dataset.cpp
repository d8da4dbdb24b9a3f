#include "dataset.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "fail.hpp"
#include "fingerprint.hpp"
#include "output_file.hpp"
#include "start_table.hpp"

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

std::string number(std::int64_t value) { return std::to_string(value); }

std::string seconds_text(std::chrono::steady_clock::time_point start) {
  char text[32];
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::snprintf(text, sizeof text, "%.3f s", seconds.count());
  return text;
}

/// Builders at a time: the cores this process may use. The other ranks of the host wait meanwhile.
std::size_t builders(std::size_t requests) {
  ::cpu_set_t cores;
  const auto allowed =
      ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? static_cast<std::size_t>(CPU_COUNT(&cores)) : 1;
  constexpr std::size_t kMost = 16;  // each holds the arrays of one part
  return std::min({requests, std::max<std::size_t>(allowed, 1), kMost});
}

}  // namespace

/// Opens each pair once, with the stamp that spares reading all of it.
struct IndexedDataset::Opener {
  std::vector<std::unique_ptr<IndexedFile>>& files;
  const std::string& cache_folder;
  HostContext& host;
  bool says_warnings;
  bool writes_stamps;

  const IndexedFile& operator()(const std::string& prefix) {
    for (const auto& opened : files) {
      if (opened->prefix() == prefix) {
        return *opened;
      }
    }
    const std::string stamp = stamp_path(prefix, cache_folder);
    files.push_back(std::make_unique<IndexedFile>(IndexedFile::open(prefix, stamp)));
    const IndexedFile& opened = *files.back();
    if (!is_integer(opened.type())) {
      fail_io(prefix + ".idx", "holds " + std::string(type_name(opened.type())) + " values; training needs token ids");
    }
    if (says_warnings) {
      for (const std::string& warning : opened.warnings()) {
        host.log(LogLevel::warning, warning);
      }
    }
    if (writes_stamps && opened.read_whole()) {
      try {
        std::error_code ignored;
        if (!cache_folder.empty()) {
          std::filesystem::create_directories(cache_folder, ignored);
        }
        opened.write_stamp(stamp);
      } catch (const IoError& error) {
        host.log(LogLevel::debug, std::string(error.what()) + "; every start reads the whole index of this pair");
      }
    }
    return opened;
  }
};

IndexedDataset::IndexedDataset(const ConfigView& config, HostContext& host, std::function<void()> before_rename)
    : seq_length_(host.facts().model.seq_length) {
  Communicator& world = host.communicator(Group::world);
  const RunFacts& facts = host.facts();
  main_rank_ = world.rank() == 0;
  const bool first_of_host = main_rank_ || detect_launch().local_rank == 0;
  const auto prepare = [&] {
    if (seq_length_ < 1) {
      fail_config("model.seq_length", "is " + number(seq_length_) + "; samples need at least 1 token");
    }
    const DataOptions options = parse_options(config, facts);
    Opener opener{files_, options.cache_folder, host, main_rank_, first_of_host};
    plan(options, facts, host, opener);
  };
  // One after another: what the first has checked and built, the others on a shared disk only find.
  together(world, [&] {
    if (main_rank_) {
      prepare();
      warn_of_overlap(host);
      ensure_indices(host, before_rename);
    }
  });
  if (world.size() > 1) {
    together(world, [&] {
      if (!main_rank_ && first_of_host) {
        prepare();
        ensure_indices(host, before_rename);
      }
    });
  }
  together(world, [&] {
    if (!first_of_host) {
      prepare();
    }
    map(facts);
  });
  if (main_rank_) {
    for (std::size_t k = 0; k < sets_.size(); ++k) {
      log_set(host, sets_[k], k == 0 && !further_plans_.empty() ? plan_ends_.front() : sample_sets_[k].samples,
              seq_length_);
      for (std::size_t p = 0; k == 0 && p < further_plans_.size(); ++p) {
        host.log(LogLevel::info, "from sample " + number(plan_ends_[p]) + " on a further plan:");
        log_set(host, further_plans_[p], further_plans_[p].wanted(), seq_length_);
      }
    }
  }
}

void IndexedDataset::plan(const DataOptions& options, const RunFacts& facts, HostContext& host, Opener& opener) {
  plan_ends_ = options.plan_ends;
  if (!options.split) {
    for (const SetOptions& set : options.sets) {
      std::vector<SequenceRange> ranges;
      ranges.reserve(set.parts.size());
      for (const PartOptions& part : set.parts) {
        ranges.push_back(range_of(part.range, opener(part.path).sequences()));
      }
      add_set(set, options, ranges, facts, host, opener);
    }
    return;
  }
  const auto shares = parse_split(*options.split);
  std::array<std::vector<SequenceRange>, 3> ranges;
  for (const PartOptions& part : options.sets[0].parts) {
    const auto cut = split_ranges(*options.split, opener(part.path).sequences(), options.rules.sampling);
    for (std::size_t k = 0; k < 3; ++k) {
      ranges[k].push_back(cut[k]);
    }
  }
  const std::pair<const char*, Split> names[] = {
      {"train", Split::train}, {"valid", Split::valid}, {"test", Split::test}};
  for (std::size_t k = 0; k < 3; ++k) {
    if (k == 0 || shares[k] > 0.0) {
      SetOptions set = options.sets[0];
      set.name = names[k].first;
      set.split = names[k].second;
      add_set(set, options, ranges[k], facts, host, opener);
    }
  }
}

void IndexedDataset::add_set(const SetOptions& set, const DataOptions& options,
                             const std::vector<SequenceRange>& ranges, const RunFacts& facts, HostContext& host,
                             Opener& opener) {
  const bool trains = set.split == Split::train;
  // Every evaluation reads the same samples, from the first on: more of them would only mix epochs into those.
  BlendedSet::Request request{
      {}, ranges, trains ? plan_ends_.front() : facts.batch.eval_samples, seq_length_, options.seed};
  for (const PartOptions& part : set.parts) {
    request.files.push_back(&opener(part.path));
  }
  BlendedSet planned(set, options, request);
  // Training repeats a part that is shorter than one sample; to measure on such repetitions would mean nothing.
  const std::string problem = planned.too_short(trains ? 1 : seq_length_ + (options.rules.extra_token ? 1 : 0));
  if (!problem.empty()) {
    const bool optional = set.split == Split::test ? options.split.has_value() : !evaluates(facts);
    if (trains || !optional) {
      fail_config("data", problem + "; use more text, a larger share, or leave the set out");
    }
    if (main_rank_) {
      host.log(LogLevel::info, problem + "; the run goes on without this set");
    }
    return;
  }
  sets_.push_back(std::move(planned));
  for (std::size_t p = 1; trains && p < plan_ends_.size(); ++p) {
    request.wanted = plan_ends_[p] - plan_ends_[p - 1];
    request.seed = options.seed + static_cast<std::uint32_t>(p);  // wraps: any 32 bits are a seed
    further_plans_.emplace_back(set, options, request);
  }
}

void IndexedDataset::warn_of_overlap(HostContext& host) const {
  for (const BlendedSet& set : sets_) {
    for (std::size_t k = 0; k < set.parts().size(); ++k) {
      for (std::size_t other = 0; other < k; ++other) {
        const SetPart& one = set.parts()[other];
        const SetPart& two = set.parts()[k];
        const std::int64_t begin = std::max(one.request.range.begin, two.request.range.begin);
        const std::int64_t end = std::min(one.request.range.end, two.request.range.end);
        if (one.file == two.file && begin < end) {
          host.log(LogLevel::warning,
                   "set \"" + set.name() + "\" reads sequences " + number(begin) + " to " + number(end) + " of " +
                       one.file->prefix() +
                       " twice, for two of its entries; one entry with the sum of their weights reads them once");
        }
      }
    }
  }
  for (const BlendedSet& set : sets_) {
    for (const SetPart& held_out : set.parts()) {
      for (const SetPart& trained : sets_[0].parts()) {
        const SequenceRange& a = held_out.request.range;
        const SequenceRange& b = trained.request.range;
        if (set.split() != Split::train && held_out.file == trained.file && a.begin < b.end && b.begin < a.end) {
          host.log(LogLevel::warning, "set \"" + set.name() + "\" reads sequences " +
                                          number(std::max(a.begin, b.begin)) + " to " + number(std::min(a.end, b.end)) +
                                          " of " + held_out.file->prefix() +
                                          " that are trained on as well; give both sets ranges that do not meet");
        }
      }
    }
  }
}

void IndexedDataset::ensure_indices(HostContext& host, const std::function<void()>& before_rename) const {
  struct Missing {
    const IndexRequest* arrays;  // or else
    const BlendRequest* blend;
    std::string why;
  };
  std::vector<Missing> missing;
  std::set<std::string> seen, folders;
  for (const auto* list : {&sets_, &further_plans_}) {
    for (const BlendedSet& set : *list) {
      std::string why;
      if (set.blend_request() != nullptr && !open_blend(*set.blend_request(), why)) {
        missing.push_back({nullptr, set.blend_request(), why});
      }
      for (const SetPart& part : set.parts()) {
        const std::string array = cache_files(part.request).document;
        if (!seen.insert(array).second) {
          continue;  // an entry that stands twice reads the same arrays
        }
        if (auto reason = why_not_cached(part.request)) {
          missing.push_back({&part.request, nullptr, std::move(*reason)});
          folders.insert(std::filesystem::path(array).parent_path().string());
        } else if (main_rank_) {
          host.log(LogLevel::info, "index cache used: " + cache_files(part.request).document);
        }
      }
    }
  }
  for (const std::string& folder : folders) {
    remove_abandoned_files(folder);
  }
  const std::size_t count = builders(missing.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of the log and the first failure
  std::exception_ptr failure;
  const auto build = [&] {
    for (std::size_t k = next++; k < missing.size(); k = next++) {
      const auto start = std::chrono::steady_clock::now();
      try {
        const Missing& job = missing[k];
        std::string what = "order of the blend built in ";
        std::string name;
        if (job.blend != nullptr) {
          store_blend(*job.blend);
          name = job.blend->stem;
        } else {
          const int bits = store_index(*job.arrays, {before_rename, true, count == 1});
          what = "index cache built with " + number(bits) + "-bit positions in ";
          name = cache_files(*job.arrays).document;
        }
        const std::lock_guard lock(mutex);
        host.log(LogLevel::info, what + seconds_text(start) + ": " + name + " (" + job.why + ")");
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = failure ? failure : std::current_exception();
        next = missing.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t k = 1; k < count; ++k) {
    threads.emplace_back(build);
  }
  build();
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void IndexedDataset::map(const RunFacts& facts) {
  for (BlendedSet& set : sets_) {
    set.map(facts.model.tokenizer_vocab);
    const bool counted = set.split() == Split::train && facts.batch.train_samples > 0;
    sample_sets_.push_back({set.name(), set.split(), counted ? facts.batch.train_samples : set.samples()});
  }
  for (BlendedSet& set : further_plans_) {
    set.map(facts.model.tokenizer_vocab);
  }
  for (std::size_t p = 0; p < plan_ends_.size(); ++p) {
    Fingerprint hash;
    hash.add("data_indexed " + std::string(sampling_name(sets_[0].sampling())) + " 1");
    hash.add(static_cast<std::uint64_t>(seq_length_));
    if (p > 0) {
      hash.add(fingerprints_.back());
      hash.add(static_cast<std::uint64_t>(plan_ends_[p - 1]));
    }
    (p == 0 ? sets_[0] : further_plans_[p - 1]).add_to(hash);
    fingerprints_.push_back(hash.value());
  }
}

bool IndexedDataset::continues(std::uint64_t fingerprint, std::int64_t samples) const {
  for (std::size_t p = 0; p < fingerprints_.size(); ++p) {
    if (fingerprints_[p] == fingerprint) {
      return p + 1 == fingerprints_.size() || samples <= plan_ends_[p];
    }
  }
  return false;
}

BlendedSet::Location IndexedDataset::locate(int set, std::int64_t index) const {
  if (set < 0 || static_cast<std::size_t>(set) >= sets_.size() || index < 0 ||
      index >= sample_sets_[static_cast<std::size_t>(set)].samples) {
    fail_io(sets_.front().parts().front().file->prefix(),
            "there is no sample " + number(index) + " in set " + number(set) + " of " +
                number(static_cast<std::int64_t>(sets_.size())) + " sets");
  }
  if (set > 0 || further_plans_.empty() || index < plan_ends_.front()) {
    return sets_[static_cast<std::size_t>(set)].locate(index);
  }
  const auto end = std::upper_bound(plan_ends_.begin(), plan_ends_.end(), index);
  const auto p = static_cast<std::size_t>(end - plan_ends_.begin());
  return further_plans_[p - 1].locate(index - plan_ends_[p - 1]);
}

void IndexedDataset::read(int set, std::int64_t index, std::span<std::int32_t> tokens,
                          std::span<std::uint8_t> loss_mask) const {
  const BlendedSet::Location at = locate(set, index);
  at.part->reader->read(at.sample, tokens, loss_mask);
}

SampleOrigin IndexedDataset::origin(int set, std::int64_t index) const {
  const BlendedSet::Location at = locate(set, index);
  return {at.part->file->prefix(), at.sample, at.part->reader->pieces(at.sample)};
}

}  // namespace espalier::data_indexed
