#include "plan/silent_world.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace espalier::app {
namespace {

class SilentGroup : public Communicator {
 public:
  SilentGroup(std::string_view name, int rank, int size, SilentWorldUse& use)
      : name_(name), rank_(rank), size_(size), use_(use) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return name_; }
  Request start(const Operation& operation, Stream&) override { refuse(name_of(operation.verb)); }
  bool done(Request) override { return true; }
  void finish(Request, Stream&) override {}
  std::unique_ptr<Communicator> split(int, int, std::string_view name) override {
    refuse("split into \"" + std::string(name) + "\"");
  }
  [[noreturn]] void abort(int code, std::string_view why) noexcept override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
    _exit(code);
  }

 protected:
  [[noreturn]] void refuse(std::string_view what) const {
    use_.asked = true;
    throw CommError("group " + name_ + ", rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " +
                    std::string(what) + ": no job is running, so nobody answers");
  }

  std::string name_;
  int rank_, size_;
  SilentWorldUse& use_;
};

class SilentWorld final : public SilentGroup {
 public:
  SilentWorld(const Grid& grid, SilentWorldUse& use)
      : SilentGroup("world", (grid.pipeline_rank * grid.data + grid.data_rank) * grid.tensor + grid.tensor_rank,
                    grid.world(), use),
        grid_(grid) {}

  Request start(const Operation& operation, Stream& after) override {
    if (operation.verb == Verb::all_gather) {
      const std::size_t bytes = operation.source.bytes();
      auto* const target = static_cast<std::byte*>(operation.target.data);
      std::memset(target, 0, bytes * static_cast<std::size_t>(size_));
      std::memcpy(target + bytes * static_cast<std::size_t>(rank_), operation.source.data, bytes);
      return {};
    }
    if (operation.verb == Verb::broadcast && operation.peer == rank_) return {};
    return SilentGroup::start(operation, after);
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    const auto group = [&](int rank, int size) { return std::make_unique<SilentGroup>(name, rank, size, use_); };
    if (name == "world") return group(rank_, size_);
    if (name == "tensor") return group(grid_.tensor_rank, grid_.tensor);
    if (name == "data") return group(grid_.data_rank, grid_.data);
    if (name == "pipeline") return group(grid_.pipeline_rank, grid_.pipeline);
    return SilentGroup::split(colour, key, name);
  }

 private:
  Grid grid_;
};

}  // namespace

std::unique_ptr<Communicator> make_silent_world(const Grid& grid, SilentWorldUse& use) {
  return std::make_unique<SilentWorld>(grid, use);
}

}  // namespace espalier::app
