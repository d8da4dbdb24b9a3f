// libFuzzer: the header of a .safetensors file. The first byte says how the rest is used: as the whole file, as a
// header with a right length in front and data behind, or as the header's inside between a good tensor and the end.
// What is accepted must cover its data exactly, and can be read to its last byte.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "espalier/error.hpp"
#include "interop/safetensors.hpp"

namespace {

using namespace espalier;
using namespace espalier::app;

std::string with_length(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data, '\1');
}

void read_all(const SafetensorsFile& file, std::size_t size) {
  const std::byte* expected = nullptr;
  std::size_t bytes = 0;
  for (const FileTensor& tensor : file.tensors()) {
    if (expected != nullptr && tensor.data != expected) std::abort();
    expected = tensor.data + tensor.bytes;
    bytes += tensor.bytes;
    if (file.find(tensor.name) == nullptr) std::abort();
    unsigned sum = 0;
    for (std::size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    volatile unsigned keep = sum;
    static_cast<void>(keep);
    if (tensor.elements() > 0 &&
        (tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      read_f32(tensor, 0, values);
    }
    file.forget(tensor);
  }
  if (bytes > size) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  std::string content = rest;
  if (data[0] % 3 == 1) content = with_length(rest, data[0] / 3);
  if (data[0] % 3 == 2) {
    content =
        with_length(R"({"good":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)" + rest + "}", 8u + data[0] / 3);
  }
  static const std::string path = "/dev/shm/fuzz_safetensors_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << content;
  try {
    read_all(SafetensorsFile(path), content.size());
  } catch (const IoError&) {
  }
  return 0;
}
