// What a run starts from and what it leaves: the newest checkpoint or initial weights; saves in the background.
#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "checkpoint/reader.hpp"
#include "interop/huggingface.hpp"
#include "model/initialise.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"
#include "train/resume.hpp"

namespace espalier::app {
namespace {

LoadOptimizer parse_policy(const std::string& text) {
  if (text == "convert") return LoadOptimizer::convert;
  return text == "skip" ? LoadOptimizer::skip : LoadOptimizer::strict;
}

constexpr const char* kSharedFolder = "; checkpoint.save must be one folder for all ranks: a shared file system, the same working directory";

}  // namespace

void Trainer::require_same_start(const std::string& found) const {
  alike([&] {
    const std::vector<std::string> all = gather_strings(session_.world(), found);
    const auto other = std::ranges::find_if(all, [&](const std::string& one) { return one != all.front(); });
    if (other == all.end()) return;
    throw IoError(fmt::format("{}: rank 0 finds {} to start from, rank {} {}{}", recipe_.checkpoint.save, all.front(), other - all.begin(),
                              *other, kSharedFolder));
  });
}

void Trainer::start_or_resume() {
  const CheckpointStore store(recipe_.checkpoint.save);
  const CheckpointSection& checkpoint = recipe_.checkpoint;
  std::optional<CheckpointStore::Found> found;
  std::filesystem::path weights;  // of another run or program
  phase(session_.world(), [&] {
    if (checkpoint.load == "auto") {
      found = store.newest();
      if (!found) weights = checkpoint.load_model;
    } else if (is_huggingface_folder(checkpoint.load)) {
      weights = checkpoint.load;
    } else if (checkpoint.load != "none") {
      found = find_checkpoint(checkpoint.load);
    }
  });
  require_same_start(found ? found->path.filename().string() : weights.empty() ? "no checkpoint" : weights.string());
  if (found) {
    load(found->path, found->note);
  } else if (!weights.empty()) {
    start_from(weights);
  } else {
    initialise_weights();
  }
  phase(session_.world(), [&] { open_monitors(found.has_value()); });
  CheckpointWriter::Settings settings{recipe_.checkpoint.save, recipe_.checkpoint.keep, recipe_.checkpoint.async,
                                      checkpoint.save_interval >= 0};
  writer_ = std::make_unique<CheckpointWriter>(settings, session_.world(), session_.backend().device(),
                                               session_.executor().parameters(), session_.data_parallel().state(),
                                               session_.optimizer().state());
  // A folder that cannot hold a checkpoint must not come to light after hours of training.
  if (!finished() && checkpoint.save_interval >= 0) {
    phase(session_.world(), [&] {
      if (session_.world().rank() != 0) return;
      store.require_room(writer_->world_bytes());
      warn_of_later_steps(store);
    });
    // Each rank writes its own file there.
    phase(session_.world(), [&] {
      if (!std::filesystem::is_directory(checkpoint.save))
        throw IoError(std::filesystem::absolute(checkpoint.save).string() + ": rank 0 has made the folder of checkpoints, but it is not seen here" +
                      kSharedFolder);
    });
  }
  report_start();
  make_guard();
}

void Trainer::warn_of_later_steps(const CheckpointStore& store) const {
  const std::vector<std::int64_t> steps = store.steps();
  const auto later = std::ranges::upper_bound(steps, state_.step);
  if (later == steps.end()) return;
  log(LogLevel::warning, "checkpoint",
      fmt::format("{} has checkpoints of later steps, up to {}, that this run does not go on from: it replaces those of steps that it saves, too; "
                  "to keep them name another folder (run.dir)",
                  recipe_.checkpoint.save, CheckpointStore::name_of(steps.back())));
}

void Trainer::initialise_weights() {
  InitialWeights how;
  how.std = recipe_.model.init_method_std;
  how.embedding = recipe_.model.embedding_init;
  how.seed = recipe_.train.seed;
  initialise(session_.facts().model, how, session_.executor().parameters(), session_.data_parallel(),
             session_.backend());
}

DataOrder Trainer::data_order(const Manifest& saved) const {
  DataOrder order;
  order.takes_more_plans = recipe_.data.options.find("planned_samples") != nullptr;
  std::uint64_t fingerprint = 0;
  const std::string& text = saved.data_fingerprint;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fingerprint, 16);
  order.continues = !text.empty() && error == std::errc() && end == text.data() + text.size() &&
                    session_.dataset().continues(fingerprint, saved.train.samples);
  return order;
}

void Trainer::start_from(const std::filesystem::path& folder) {
  std::unique_ptr<HuggingFaceFolder> source;
  std::string name = folder.string();
  phase(session_.world(), [&] {
    if (is_huggingface_folder(folder)) {
      source = std::make_unique<HuggingFaceFolder>(folder);
      source->require_model(session_.facts().model, session_.parameters());
      return;
    }
    const CheckpointStore::Found found = find_checkpoint(folder.string());
    const CheckpointReader reader(found.path);
    reader.require_model(session_.facts().model);
    reader.load(session_.parameters().all(), session_.executor().parameters(), session_.data_parallel().state(),
                LoadOptimizer::skip, session_.backend().device(), session_.stream());
    name = found.path.string();
  });
  if (source) {
    load_weights(*source, session_.executor().parameters(), session_.data_parallel(), session_.backend());
  } else {
    session_.data_parallel().refresh(session_.stream());
    session_.backend().device().wait(session_.stream());
  }
  log(LogLevel::info, "checkpoint", fmt::format("weights of {}; the optimizer's state starts anew", name));
}

void Trainer::load(const std::filesystem::path& folder, const std::string& note) {
  const bool own_run = recipe_.checkpoint.load == "auto";
  std::vector<std::string> notes;
  phase(session_.world(), [&] {
    const CheckpointReader reader(folder);
    const Manifest& manifest = reader.manifest();
    const Manifest now = this->manifest();
    const LoadOptimizer policy = parse_policy(recipe_.checkpoint.load_optimizer);
    reader.require_model(now.model);
    if (own_run) check_same_run(manifest, now, data_order(manifest));
    if (policy == LoadOptimizer::strict) check_same_optimizer(manifest, now);
    if (policy != LoadOptimizer::skip) check_same_batches(manifest.train, batches_);
    notes = reader.load(session_.parameters().all(), session_.executor().parameters(), session_.data_parallel().state(),
                        policy, session_.backend().device(), session_.stream(), session_.optimizer().state());
    state_ = manifest.train;
    if (policy != LoadOptimizer::skip) {
      for (const OptimizerScalar& scalar : session_.optimizer().scalars()) {
        const auto saved = std::ranges::find(manifest.scalars, scalar.name, &std::pair<std::string, double>::first);
        if (saved != manifest.scalars.end()) {
          *scalar.value = saved->second;
        } else if (policy == LoadOptimizer::strict) {
          throw IoError(folder.string() + ": has no " + std::string(scalar.name) +
                        " for this optimizer; checkpoint.load_optimizer = \"convert\" starts it anew");
        }
      }
    } else {
      state_ = {};  // weights only: a new run that starts from them
    }
    if (own_run && !manifest.data_fingerprint.empty() && manifest.data_fingerprint != now.data_fingerprint) {
      notes.push_back("the data go on in the order the checkpoint was written with; a further plan follows it");
    }
    if (policy != LoadOptimizer::skip) {
      for (std::string& line : differences(manifest, now)) notes.push_back(std::move(line));
    }
  });
  session_.data_parallel().refresh(session_.stream());
  session_.backend().device().wait(session_.stream());
  saved_step_ = state_.step;
  log(LogLevel::info, "checkpoint", fmt::format("loaded {}", folder.string()));
  if (session_.world().rank() == 0) {
    if (!note.empty()) log(LogLevel::warning, "checkpoint", note);
    for (const std::string& line : notes) log(LogLevel::warning, "checkpoint", line);
  }
}

void Trainer::save() {
  finish_save();
  if (guard_ && state_.step % recipe_.guard.interval != 0) check_replicas();  // else the step's own check has been
  if (!session_.data_parallel().replicas_equal()) session_.data_parallel().sync(session_.stream());
  tell([](Monitor& monitor) { monitor.flush(); });
  event("checkpoint", fmt::format("saving checkpoint at iteration {:7d} to {}", state_.step, recipe_.checkpoint.save));
  writer_->start(manifest(), session_.stream());
  saved_step_ = state_.step;
}

void Trainer::poll_save(bool writing) {
  if (writer_->in_flight() && !writing) finish_save();
}

void Trainer::finish_save() {
  if (!writer_->in_flight()) return;
  const auto folder = writer_->publish();
  event("checkpoint", fmt::format("successfully saved checkpoint {}", folder.string()));
}

void Trainer::rescue_save() {
  try {
    finish_save();
  } catch (const AgreedError& error) {
    if (session_.world().rank() == 0) log(LogLevel::error, "checkpoint", error.what());
  }
}

Manifest Trainer::manifest() const {
  Manifest manifest;
  manifest.train = state_;
  manifest.seed = recipe_.train.seed;
  manifest.recipe = recipe_.effective;
  manifest.optimizer = recipe_.optimizer.plugin;
  for (const OptimizerScalar& scalar : session_.optimizer().scalars())
    manifest.scalars.emplace_back(scalar.name, *scalar.value);
  manifest.data_fingerprint = fmt::format("{:016x}", session_.dataset().fingerprint());
  manifest.tokenizer = session_.tokenizer().fingerprint();
  manifest.provider = session_.provider();
  manifest.model = session_.facts().model;
  manifest.grid = session_.facts().grid;
  return manifest;
}

}  // namespace espalier::app
