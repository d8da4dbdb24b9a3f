// Index arrays of data_indexed: built and written, opened, read. Prints JSON lines; bench/data_indices.py runs it side
// by side with the peer.
//   data_bench make PREFIX          pair of the recipe of tests/fixtures/data/gpt_bigscience/digest_recipe
//   data_bench indices PREFIX OUT   its three arrays, one thread, without fsync
//   data_bench large PREFIX         a pair with a cache of 100 million samples (1.7 GB of disk)
//   data_bench open PREFIX [cold]   opens that in a fresh process; cold: after its pages were dropped from the page cache
//   data_bench read PREFIX          writes 100 MB of tokens, reads samples of 2049 of them
//   data_bench write PREFIX         writes 2 and 4 million documents of one token, five times each
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache.hpp"
#include "espalier/error.hpp"
#include "index_file.hpp"
#include "index_writer.hpp"
#include "mapped_file.hpp"
#include "output_file.hpp"
#include "sample_reader.hpp"
#include "support/numpy_normal.hpp"

namespace {

using namespace espalier::data_indexed;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Usage {
  double peak_mib;
  long faults;
  double processor;  // seconds, of user and system
};
Usage usage() {
  ::rusage own{};
  ::getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const ::timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return {static_cast<double>(own.ru_maxrss) / 1024.0, own.ru_minflt + own.ru_majflt, seconds(own.ru_utime) + seconds(own.ru_stime)};
}

/// A pair of uint16 whose .bin is a hole.
void write_pair(const std::string& prefix, const std::vector<std::int32_t>& sizes) {
  OutputFile index(prefix + ".idx");
  const auto put = [&](auto value) { index.write(&value, sizeof value); };
  index.write(kIndexMagic, sizeof kIndexMagic);
  put(kIndexVersion);
  put(std::uint8_t{8});
  put(std::uint64_t{sizes.size()});
  put(std::uint64_t{sizes.size() + 1});
  index.write(sizes.data(), sizes.size() * 4);
  std::int64_t bytes = 0;
  for (const std::int32_t size : sizes) {
    put(bytes);
    bytes += 2 * std::int64_t{size};
  }
  for (std::size_t k = 0; k <= sizes.size(); ++k) {
    put(static_cast<std::int64_t>(k));
  }
  index.sync();
  index.rename_into_place();
  std::ofstream(prefix + ".bin").flush();
  if (::truncate((prefix + ".bin").c_str(), bytes) != 0) {
    throw espalier::IoError(prefix + ".bin", "cannot be made long enough", errno);
  }
}

/// Lognormal sizes by numpy's RandomState.
void make(const std::string& prefix) {
  espalier::testing_support::NumpyNormal normal(1234);
  std::vector<std::int32_t> sizes(2000000);
  for (auto& size : sizes) {
    size = static_cast<std::int32_t>(std::min(std::exp(6.0 + normal.next()), 1e6));
  }
  write_pair(prefix, sizes);
}

IndexRequest recipe(const IndexedFile& file) {
  return {&file, "", "train", {0, file.sequences()}, 3227572, 2048, 1234};
}

IndexRequest large_request(const IndexedFile& file) {
  return {&file, "", "train", {0, file.sequences()}, 100'000'000, 2048, 1};
}

void large(const std::string& prefix) {
  std::vector<std::int32_t> sizes(20'000'000);
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    sizes[k] = 9000 + static_cast<std::int32_t>(k * 2654435761U % 3000);
  }
  write_pair(prefix, sizes);
  ::sleep(3);  // a stamp is for files that have settled
  const auto file = IndexedFile::open(prefix);
  file.write_stamp(stamp_path(prefix, ""));
  store_index(large_request(file));
}

/// 100 MB of tokens, all samples of one epoch in their shuffled order, twice: the second time all is in memory.
void read_samples(const std::string& prefix) {
  {
    IndexWriter writer(prefix, ElementType::uint16);
    std::vector<std::int32_t> document(5000);
    for (int k = 0; k < 10'000; ++k) {
      for (std::size_t t = 0; t < document.size(); ++t) {
        document[t] = static_cast<std::int32_t>((t * 2654435761U + static_cast<unsigned>(k)) % 50000);
      }
      writer.add_sequence(std::span<const std::int32_t>(document));
      writer.end_document();
    }
    writer.finish();
  }
  const auto file = IndexedFile::open(prefix);
  const IndexRequest request{&file, "", "train", {0, file.sequences()}, 24'000, 2048, 1};
  store_index(request);
  const SampleReader reader(file, load_index(request), 250680);
  std::vector<std::int32_t> tokens(2049);
  double seconds[2];
  for (double& round : seconds) {
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < 24'000; ++i) {
      reader.read(i, tokens);
    }
    round = seconds_since(start);
  }
  std::printf("{\"microseconds_a_sample\": %.2f, \"first_round\": %.2f}\n", seconds[1] * 1e6 / 24'000,
              seconds[0] * 1e6 / 24'000);
}

/// The files of a pair and its cache.
std::vector<std::string> files_of(const std::string& prefix) {
  std::vector<std::string> files;
  const std::filesystem::path path = std::filesystem::absolute(prefix);
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    if (entry.path().filename().string().starts_with(path.filename().string()) && entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  return files;
}

/// Clean pages only: the files must have been written long enough ago.
void drop_from_page_cache(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

/// KiB of the files that lie in the page cache. The tokens of the large pair are a hole as long as many disks: left out.
long cached_kib(const std::vector<std::string>& files) {
  constexpr std::size_t kPage = 4096;
  std::size_t pages = 0;
  for (const std::string& path : files) {
    const auto file = MappedFile::open(path);
    if (file->size_bytes() == 0 || path.ends_with(".bin")) {
      continue;
    }
    std::vector<unsigned char> resident((file->size_bytes() + kPage - 1) / kPage);
    if (::mincore(const_cast<std::byte*>(file->data()), file->size_bytes(), resident.data()) == 0) {
      for (const unsigned char one : resident) {
        pages += one & 1U;
      }
    }
  }
  return static_cast<long>(pages * kPage / 1024);
}

void open_large(const std::string& prefix, bool cold) {
  const auto files = files_of(prefix);
  if (cold) {
    drop_from_page_cache(files);
  }
  const long cached = cached_kib(files);
  const Usage before = usage();
  const auto start = Clock::now();
  const auto file = IndexedFile::open(prefix, stamp_path(prefix, ""));
  const IndexArrays arrays = load_index(large_request(file));
  const double seconds = seconds_since(start);
  const Usage after = usage();
  std::printf("{\"samples\": %lld, \"read_whole\": %s, \"milliseconds\": %.2f, \"page_faults\": %ld, "
              "\"kib_in_page_cache_before\": %ld, \"kib_read_from_disk\": %ld}\n",
              static_cast<long long>(arrays.samples()), file.read_whole() ? "true" : "false", seconds * 1e3,
              after.faults - before.faults, cached, cached_kib(files) - cached);
}

/// What finish() takes of this process's time and in all: the latter waits for the disk, and for older files to go.
void write_documents(const std::string& prefix) {
  constexpr int kRounds = 5;
  double processor[2] = {1e9, 1e9}, wall[2] = {1e9, 1e9};
  for (int round = 0; round < kRounds; ++round) {
    for (const int k : {0, 1}) {
      const std::int32_t token[] = {7};
      IndexWriter writer(prefix, ElementType::uint16);
      for (int document = 0; document < 2'000'000 * (k + 1); ++document) {
        writer.add_sequence(std::span<const std::int32_t>(token));
        writer.end_document();
      }
      const auto start = Clock::now();
      const double before = usage().processor;
      writer.finish();
      wall[k] = std::min(wall[k], seconds_since(start));
      processor[k] = std::min(processor[k], usage().processor - before);
    }
  }
  std::printf("{\"finish_seconds_2_million\": %.3f, \"of_4_million\": %.3f, \"ratio\": %.2f, \"processor_seconds\": [%.3f, %.3f], "
              "\"processor_ratio\": %.2f, \"peak_mib\": %.1f}\n",
              wall[0], wall[1], wall[1] / wall[0], processor[0], processor[1], processor[1] / processor[0], usage().peak_mib);
}

int run(int argc, char** argv) {
  const std::string job = argc > 1 ? argv[1] : "";
  const std::string prefix = argc > 2 ? argv[2] : "";
  if (job == "make" && argc == 3) {
    make(prefix);
  } else if (job == "large" && argc == 3) {
    large(prefix);
  } else if (job == "indices" && argc == 4) {
    const auto file = IndexedFile::open(prefix);
    const std::string stem = std::string(argv[3]) + "/";
    const auto start = Clock::now();
    export_index(recipe(file), {stem + "doc_idx.npy", stem + "sample_idx.npy", stem + "shuffle_idx.npy"});
    std::printf("{\"seconds\": %.4f, \"peak_mib\": %.1f}\n", seconds_since(start), usage().peak_mib);
  } else if (job == "write" && argc == 3) {
    write_documents(prefix);
  } else if (job == "open" && (argc == 3 || (argc == 4 && std::string(argv[3]) == "cold"))) {
    open_large(prefix, argc == 4);
  } else if (job == "read" && argc == 3) {
    read_samples(prefix);
  } else {
    std::fprintf(stderr, "usage: data_bench make|large|open|read|write PREFIX, data_bench indices PREFIX OUT\n");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
