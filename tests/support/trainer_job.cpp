#include "support/trainer_job.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "checkpoint/reader.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;

fs::path scratch() { return fs::temp_directory_path() / ("espalier_jobs_" + std::to_string(::getuid())); }

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TrainerJob::TrainerJob(const std::string& name, const fs::path& recipe)
    : folder_(scratch() / (name + "_" + std::to_string(::getpid()))), base_(recipe) {
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  tables_["run"]["dir"] = "\"" + run_dir().string() + "\"";
  tables_["plugins"]["search_path"] = "[\"" ESPALIER_PLUGIN_DIR "\"]";
}

TrainerJob::TrainerJob(const std::string& name) : TrainerJob(name, fs::path()) {
  tables_["model"] = {{"layers", "2"}, {"hidden", "32"}, {"heads", "4"}, {"vocab_size", "259"}, {"seq_length", "24"}};
  tables_["train"] = {{"train_iters", "40"}, {"global_batch_size", "8"},       {"micro_batch_size", "2"},
                      {"lr", "1e-2"},        {"lr_decay_style", "\"cosine\""}, {"threads", "1"}};
  tables_["optimizer"]["plugin"] = "\"optim_fp32\"";
  tables_["backend"]["plugin"] = "\"reference\"";
  tables_["data"]["plugin"] = "\"synthetic\"";
}

TrainerJob::~TrainerJob() {
  if (folder_.empty() || testing::Test::HasFailure() || std::uncaught_exceptions() > 0) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

TrainerJob& TrainerJob::set(const std::string& key, const std::string& value) {
  const auto dot = key.rfind('.');
  tables_[key.substr(0, dot)][key.substr(dot + 1)] = value;
  return *this;
}

TrainerJob& TrainerJob::ranks(int count, int zero_stage) {
  world_ = count;
  if (count > 1)
    set("parallel.data.plugin", "\"parallel_zero\"").set("parallel.data.stage", std::to_string(zero_stage));
  return *this;
}

TrainerJob& TrainerJob::world(int count) {
  world_ = count;
  return *this;
}

TrainerJob& TrainerJob::environment(const std::string& text) {
  environment_.push_back(text);
  return *this;
}

TrainerJob& TrainerJob::rank_commands(std::vector<std::vector<std::string>> commands) {
  rank_commands_ = std::move(commands);
  world_ = static_cast<int>(rank_commands_.size());
  return *this;
}

std::vector<std::string> TrainerJob::trainer() const { return {TRAINER_EXE, "train", recipe().string()}; }

std::vector<std::string> TrainerJob::command() const {
  if (world_ == 1 && rank_commands_.empty()) return trainer();
  std::vector<std::string> all = {ESPALIER_MPIEXEC};
  const auto add = [&all](const std::string& count, const std::vector<std::string>& command) {
    all.insert(all.end(), {"-n", count});
    all.insert(all.end(), command.begin(), command.end());
  };
  if (rank_commands_.empty()) add(std::to_string(world_), trainer());
  for (std::size_t r = 0; r < rank_commands_.size(); ++r) {
    if (r > 0) all.emplace_back(":");
    add("1", rank_commands_[r].empty() ? trainer() : rank_commands_[r]);
  }
  return all;
}

std::unique_ptr<Process> TrainerJob::start() {
  {
    std::ofstream out(recipe());
    if (!base_.empty()) out << "include = [\"" << base_.string() << "\"]\n";
    for (const auto& [table, values] : tables_) {
      out << "[" << table << "]\n";
      for (const auto& [key, value] : values) out << key << " = " << value << "\n";
    }
  }
  return std::make_unique<Process>(command(), environment_, folder_ / "output.txt");
}

Ended TrainerJob::run(double limit) { return start()->wait(limit); }

Ended TrainerJob::expect(int code, double limit) {
  Ended ended = run(limit);
  if (ended.timed_out || ended.code != code) {
    throw std::runtime_error(folder_.string() + ": expected exit code " + std::to_string(code) + ", found " +
                             std::to_string(ended.code) + (ended.timed_out ? " after the time limit" : "") + "\n" +
                             ended.output);
  }
  return ended;
}

bool TrainerJob::wait_for_step(Process& process, int step) const {
  const fs::path path = run_dir() / "metrics.jsonl";
  const std::string wanted = "{\"kind\":\"step\",\"step\":" + std::to_string(step) + ",";
  const auto has_step = [&] {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str().find(wanted) != std::string::npos;
  };
  while (!has_step()) {
    if (!process.running()) return has_step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::vector<Json> TrainerJob::records(const std::string& kind) const {
  std::vector<Json> found;
  for (const std::string& line : lines_of(run_dir() / "metrics.jsonl")) {
    Json record = Json::parse(line);
    if (record.at("kind") == kind) found.push_back(std::move(record));
  }
  return found;
}

std::string TrainerJob::log() const {
  std::ifstream in(run_dir() / "train.log", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

double number(const Json& record, const std::string& key) {
  const Json& value = record.at(key);
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

std::string difference_of_steps(const std::vector<Json>& a, const std::vector<Json>& b, int first, int last) {
  const auto count = static_cast<std::size_t>(last - first + 1);
  for (const auto* run : {&a, &b}) {
    if (run->size() != count)
      return "expected " + std::to_string(count) + " steps, found " + std::to_string(run->size());
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i].at("step") != first + static_cast<int>(i)) return "steps are not in order: " + a[i].dump();
    for (const char* key : {"step", "samples", "tokens", "lm loss", "learning rate", "global batch size", "grad norm",
                            "loss scale", "applied steps", "skipped steps", "nan steps"}) {
      if (a[i].at(key) != b[i].at(key)) return std::string(key) + " differs: " + a[i].dump() + " and " + b[i].dump();
    }
  }
  return "";
}

std::string difference_of_checkpoints(const fs::path& a, const fs::path& b) {
  const app::CheckpointReader left(a), right(b);
  const app::Manifest& x = left.manifest();
  const app::Manifest& y = right.manifest();
  if (!(x.train == y.train)) return "train state differs";
  if (x.scalars != y.scalars) return "scalars of the optimizer differ";
  if (x.tensors.empty() || x.tensors.size() != y.tensors.size()) return "number of tensors differs";
  for (const app::StoredTensor& tensor : x.tensors) {
    const app::StoredTensor* other = y.find(tensor.parameter, tensor.state);
    const std::string name = tensor.parameter + " " + tensor.state;
    if (other == nullptr || other->dtype != tensor.dtype) return name + " is missing or of another type";
    const std::vector<float> own = left.read_tensor(tensor), theirs = right.read_tensor(*other);
    if (own.size() != theirs.size() || std::memcmp(own.data(), theirs.data(), own.size() * sizeof(float)) != 0)
      return name + " differs";
  }
  return "";
}

std::vector<float> read_state(const fs::path& checkpoint, const std::string& parameter, const std::string& state) {
  const app::CheckpointReader reader(checkpoint);
  const app::StoredTensor* tensor = reader.manifest().find(parameter, state);
  if (tensor == nullptr) throw std::runtime_error(checkpoint.string() + ": no " + parameter + " " + state);
  return reader.read_tensor(*tensor);
}

}  // namespace espalier::testing_support
