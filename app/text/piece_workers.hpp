#pragma once

#include <cstdint>
#include <string>

#include "espalier/communicator.hpp"
#include "espalier/tokenizer.hpp"
#include "text/parts.hpp"
#include "text/pieces.hpp"
#include "text/preprocess.hpp"
#include "text/progress.hpp"

namespace espalier::app {

/// Why pieces were not worked off. Of all ranks, the first piece in the order of the input speaks.
struct PieceFailure {
  enum class Kind : std::uint8_t {
    none,
    stopped,  ///< by a signal
    input,    ///< a fault of the input: the same command would fail again
    machine,  ///< a full disk and the like: the parts are worth keeping
  } kind = Kind::none;
  PieceKey piece;
  int code = 0;
  std::string text;
};

struct WorkDone {
  PieceFailure failure;
  std::int64_t bytes = 0;  ///< of the files, in this run, all ranks
};

/// Works off the pieces of this rank's queue on the job's threads and writes their parts. Collective: ends alike on all
/// ranks, and throws nothing that was met on the way.
/// @param progress  null: shown by nobody, or by another rank.
WorkDone work_off(const PreprocessJob& job, const Tokenizer& tokenizer, PieceQueue& queue, const PartFolder& parts,
                  Communicator& world, ByteProgress* progress);

}  // namespace espalier::app
