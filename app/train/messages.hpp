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
  /// @param tensor  where not null, its ranks each send their part of what all of them hold, and gather it before use.
  /// @param dry  opens and closes slots, but sends nothing.
  Messages(Communicator& group, const PipelineParallel& pipeline, Communicator* tensor, Stream* stream, bool dry);

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
    View whole;  ///< of a receive: what is gathered from the parts; empty where no part was sent
  };
  int tag(MessageKind kind, int part, int micro_batch) const;
  bool scatters(const Model& model) const;
  View own_part(const View& whole) const;
  void finish_send(MessageKind kind, Model& model);

  Communicator& group_;
  const PipelineParallel& pipeline_;
  Communicator* tensor_;
  Stream* stream_;
  bool dry_;
  std::array<Open, 2> sends_;      // the open one of each kind
  std::vector<Open> receives_[2];  // few: those posted and not yet used
};

}  // namespace espalier::app
