#include "commands/commands.hpp"

namespace espalier::app {

namespace {

const Command* const kCommands[] = {
    &kTrain,  //
    &kPreprocess,
    &kTokenizerTrain,
    &kTokenizerEncode,
    &kTokenizerDecode,
    &kDataShow,
    &kDataInspect,
    &kDataMerge,
    &kDataVerify,
    &kDataIndices,
    &kGenerate,
    &kEval,
    &kConvert,
    &kCheckpointInspect,
    &kConfigCheck,
    &kConfigExplain,
    &kConfigKeys,
    &kPluginsList,
    &kPluginsInspect,
    &kNumerics,
    &kDoctor,
};

}  // namespace

std::span<const Command* const> all_commands() { return kCommands; }

}  // namespace espalier::app
