// Encodes texts with a tokenizer.json on one thread and prints throughput (by CPU time), ids and a hash of the ids: the
// counterpart of bench/peers/encode_with.py, which does the same with PyPI's tokenizers and tiktoken.
//   tokenizer_bench TOKENIZER.json ROUNDS FILE.jsonl...
#include <time.h>
#include <xxhash.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizers/huggingface_tokenizer.hpp"

int main(int argc, char** argv) {
  using namespace espalier::app;
  if (argc < 4) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.json ROUNDS FILE.jsonl...\n");
    return 2;
  }
  // Of the process, which has one thread: what a core does in it, however busy the machine is.
  const auto cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double loading = cpu_seconds();
  const HuggingFaceTokenizer tokenizer(read_tokenizer_file(argv[1]), "");
  const double load_seconds = cpu_seconds() - loading;
  std::vector<std::string> documents;
  std::size_t bytes = 0;
  for (int k = 3; k < argc; ++k) {
    std::ifstream in(argv[k]);
    for (std::string line; std::getline(in, line);) {
      documents.push_back(nlohmann::json::parse(line).at("text").get<std::string>());
      bytes += documents.back().size();
    }
  }
  std::vector<std::int32_t> ids;
  double best = 0;
  const int rounds = std::atoi(argv[2]);
  for (int round = 0; round < rounds; ++round) {
    // A tokenizer of its own each round: the first texts meet an empty word cache, as in a run.
    const HuggingFaceTokenizer fresh(read_tokenizer_file(argv[1]), "");
    ids.clear();
    const double start = cpu_seconds();
    for (const std::string& document : documents) fresh.encode(document, ids);
    const double rate = static_cast<double>(bytes) / (cpu_seconds() - start) / 1e6;
    if (rate > best) best = rate;
  }
  std::printf(
      "{\"documents\": %zu, \"mb\": %.1f, \"load_s\": %.3f, \"mb_per_s\": %.2f, \"ids\": %zu, \"hash\": \"%016llx\"}\n",
      documents.size(), static_cast<double>(bytes) / 1e6, load_seconds, best, ids.size(),
      static_cast<unsigned long long>(XXH3_64bits(ids.data(), ids.size() * sizeof(ids[0]))));
}
