#pragma once

#include <memory>

#include "interop/huggingface_names.hpp"
#include "interop/safetensors.hpp"
#include "interop/weights.hpp"

namespace espalier::app {

/// Reads a tensor of a Hugging Face file in the order of our logical parameter. File and tensor must outlive it.
/// @param shape  of the model: head size, for a fused q, k, v whose parts are apart.
std::unique_ptr<WeightReader> open_file_tensor(const SafetensorsFile& file, const FileTensor& tensor,
                                               const FileLayout& layout, const ModelShape& shape);

}  // namespace espalier::app
