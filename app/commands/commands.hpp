#pragma once

#include "commands/command.hpp"

namespace espalier::app {

/// One line a command, defined in the file of its name.
extern const Command kTrain;
extern const Command kCheckpointInspect;
extern const Command kConvert;
extern const Command kConfigCheck;
extern const Command kConfigExplain;
extern const Command kConfigKeys;
extern const Command kPluginsList;
extern const Command kPluginsInspect;
extern const Command kNumerics;
extern const Command kDoctor;
extern const Command kPreprocess;
extern const Command kTokenizerTrain;
extern const Command kTokenizerEncode;
extern const Command kTokenizerDecode;
extern const Command kDataInspect;
extern const Command kDataMerge;
extern const Command kDataVerify;
extern const Command kDataIndices;
extern const Command kDataShow;
extern const Command kGenerate;
extern const Command kEval;

}  // namespace espalier::app
