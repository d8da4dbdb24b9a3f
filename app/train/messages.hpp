#pragma once

#include <array>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "model/model.hpp"

namespace espalier::app {

enum class MessageKind : std::uint8_t { activation, gradient };

/// Messages between the stages of a pipeline, in list order. A receive is posted where the list says and finished where
/// its data is needed; a send is finished at the next send of its kind, or at the end of the list: fixed places, so
/// that the arena's slots close in the same order in a dry walk and in a run.
class Messages {
 public:
  /// @param dry  opens and closes slots, but sends nothing.
  Messages(Communicator& group, const PipelineParallel& pipeline, Stream* stream, bool dry);

  void send(MessageKind kind, const Instruction& at, Model& model);
  void receive(MessageKind kind, const Instruction& at, Model& model);
  /// Before data of a receive is used; does nothing where none was posted.
  void need(MessageKind kind, int chunk, int micro_batch);
  /// Finishes all sends.
  void finish(Model& model);
  /// Moves what is open: MPI works only while it is polled.
  void poll();
  bool dry() const { return dry_; }

 private:
  struct Open {
    Request request;
    Instruction at;
    bool open = false;
  };
  int tag(MessageKind kind, int part, int micro_batch) const;
  void finish_send(MessageKind kind, Model& model);

  Communicator& group_;
  const PipelineParallel& pipeline_;
  Stream* stream_;
  bool dry_;
  std::array<Open, 2> sends_;      // the open one of each kind
  std::vector<Open> receives_[2];  // few: those posted and not yet used
};

}  // namespace espalier::app
