#include "train/messages.hpp"

#include <algorithm>

#include "espalier/parallel/checker.hpp"

namespace espalier::app {
namespace {

constexpr int kTags = 32768;

std::size_t index(MessageKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

Messages::Messages(Communicator& group, const PipelineParallel& pipeline, Communicator* tensor, Stream* stream,
                   bool dry)
    : group_(group), pipeline_(pipeline), tensor_(tensor), stream_(stream), dry_(dry) {
  for (auto& receives : receives_) receives.reserve(kMostOpenReceives);
}

/// @param part  the part of the model that sends.
int Messages::tag(MessageKind kind, int part, int micro_batch) const {
  const int parts = pipeline_.stages() * pipeline_.chunks();
  return ((micro_batch * parts + part) * 2 + static_cast<int>(kind)) % kTags;
}

/// Under sequence parallelism each rank has rows of its own.
bool Messages::scatters(const Model& model) const {
  return tensor_ != nullptr && tensor_->size() > 1 && model.same_rows_on_tensor_ranks();
}

View Messages::own_part(const View& whole) const {
  const std::int64_t part = whole.elements() / tensor_->size();
  ESPALIER_ASSERT(part * tensor_->size() == whole.elements());  // heads divide, so hidden does
  return whole.flat_range(part * tensor_->rank(), part * (tensor_->rank() + 1));
}

void Messages::send(MessageKind kind, const Instruction& at, Model& model) {
  finish_send(kind, model);
  Open& open = sends_[index(kind)];
  open = {{}, at, true, {}};
  if (dry_) return;
  const int part = at.chunk * pipeline_.stages() + group_.rank();
  const View data = kind == MessageKind::activation ? model.output(at.chunk, at.micro_batch)
                                                    : model.input_gradient(at.chunk, at.micro_batch);
  open.request =
      group_.start_send(scatters(model) ? own_part(data) : data, at.peer, tag(kind, part, at.micro_batch), *stream_);
}

void Messages::receive(MessageKind kind, const Instruction& at, Model& model) {
  const View target = kind == MessageKind::activation ? model.open_input(at.chunk, at.micro_batch)
                                                      : model.open_gradient(at.chunk, at.micro_batch);
  if (dry_) return;
  const int part = at.chunk * pipeline_.stages() + group_.rank();
  const int sender = kind == MessageKind::activation ? part - 1 : part + 1;
  auto& receives = receives_[index(kind)];
  ESPALIER_ASSERT(receives.size() < kMostOpenReceives);
  const bool part_only = scatters(model);
  const View place = part_only ? own_part(target) : target;
  receives.push_back({group_.start_receive(place, at.peer, tag(kind, sender, at.micro_batch), *stream_), at, true,
                      part_only ? target : View{}});
}

void Messages::need(MessageKind kind, int chunk, int micro_batch) {
  auto& receives = receives_[index(kind)];
  const auto found = std::find_if(receives.begin(), receives.end(), [&](const Open& open) {
    return open.at.chunk == chunk && open.at.micro_batch == micro_batch;
  });
  if (found == receives.end()) return;
  group_.finish(found->request, *stream_);
  if (found->whole)
    tensor_->finish(tensor_->start_all_gather(own_part(found->whole), found->whole.flat(), *stream_), *stream_);
  receives.erase(found);
}

void Messages::finish_send(MessageKind kind, Model& model) {
  Open& open = sends_[index(kind)];
  if (!open.open) return;
  group_.finish(open.request, *stream_);
  if (kind == MessageKind::activation) {
    model.close_output(open.at.chunk, open.at.micro_batch);
  } else {
    model.close_input_gradient(open.at.chunk, open.at.micro_batch);
  }
  open = {};
}

void Messages::finish(Model& model) {
  finish_send(MessageKind::activation, model);
  finish_send(MessageKind::gradient, model);
}

void Messages::poll() {
  for (const Open& open : sends_) {
    if (open.request) group_.done(open.request);
  }
  for (const auto& receives : receives_) {
    if (!receives.empty()) group_.done(receives.front().request);
  }
}

}  // namespace espalier::app
