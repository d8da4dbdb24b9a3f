#include "text/parts.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostLanguages = 1024;          // each costs two files at the end
constexpr std::size_t kBlock = std::size_t{4} << 20;  // of a part that is read
constexpr const char* kJobFile = "job.txt";
constexpr const char* kFlagFile = "stopped";
constexpr const char* kExtension = ".part";

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

Json to_json(const PartCounts& counts) {
  return {{"bytes", counts.read.bytes},
          {"lines", counts.read.lines},
          {"blank_lines", counts.read.blank_lines},
          {"replaced", counts.read.replaced},
          {"skipped", counts.read.skipped},
          {"documents", counts.documents},
          {"empty", counts.empty},
          {"tokens", counts.tokens}};
}

PartCounts counts_of(const Json& json) {
  PartCounts counts;
  counts.read.bytes = json.at("bytes").get<std::int64_t>();
  counts.read.lines = json.at("lines").get<std::int64_t>();
  counts.read.blank_lines = json.at("blank_lines").get<std::int64_t>();
  counts.read.replaced = json.at("replaced").get<std::int64_t>();
  counts.read.skipped = json.at("skipped").get<decltype(counts.read.skipped)>();
  counts.documents = json.at("documents").get<std::int64_t>();
  counts.empty = json.at("empty").get<std::int64_t>();
  counts.tokens = json.at("tokens").get<std::int64_t>();
  return counts;
}

std::optional<std::string> content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& file, const std::vector<std::string_view>& pieces) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = descriptor < 0 ? errno : 0;
  for (std::string_view rest : pieces) {
    while (error == 0 && !rest.empty()) {
      const ssize_t written = ::write(descriptor, rest.data(), rest.size());
      if (written < 0 && errno != EINTR) error = errno;
      if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (descriptor >= 0 && ::close(descriptor) != 0 && error == 0) error = errno;
  if (error == 0) return;
  std::error_code ignored;
  fs::remove(file, ignored);  // on a full disk its half of a piece would be in the way
  throw IoError(file.string(), "cannot be written", error);
}

struct Segment {
  std::string language;
  std::int64_t offset = 0;
  LanguageCounts counts;
  std::string xxh3;
};

/// First line of a part, and where its segments lie.
struct Header {
  PartInfo info;
  std::vector<Segment> segments;
};

/// Nothing for a file that is not whole.
std::optional<Header> read_header(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  Header header;
  try {
    const Json json = Json::parse(line);
    header.info.last = json.at("last").get<bool>();
    header.info.counts = counts_of(json.at("counts"));
    std::int64_t offset = std::ssize(line) + 1;
    for (const Json& entry : json.at("segments")) {
      const LanguageCounts counts{entry.at("documents").get<std::int64_t>(), entry.at("tokens").get<std::int64_t>(),
                                  entry.at("bytes").get<std::int64_t>()};
      Segment segment{entry.at("language").get<std::string>(), offset, counts, entry.at("xxh3").get<std::string>()};
      header.info.languages.emplace(segment.language, counts);
      offset += counts.bytes;
      header.segments.push_back(std::move(segment));
    }
    std::error_code error;
    if (static_cast<std::int64_t>(fs::file_size(file, error)) != offset || error) return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return header;
}

/// Bytes [offset, offset + bytes) of a file in blocks, hashed on the way.
class SegmentReader {
 public:
  SegmentReader(const fs::path& file, const Segment& segment)
      : file_(file),
        in_(file, std::ios::binary),
        left_(segment.counts.bytes),
        hash_(::XXH3_createState(), ::XXH3_freeState) {
    in_.seekg(segment.offset);
    ::XXH3_64bits_reset(hash_.get());
  }
  /// @returns false when the file ends first.
  bool read(void* to, std::size_t bytes) {
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
      if (at_ == block_.size() && !fill()) return false;
      const std::size_t count = std::min(bytes, block_.size() - at_);
      std::memcpy(out, block_.data() + at_, count);
      at_ += count;
      out += count;
      bytes -= count;
    }
    return true;
  }
  std::string hash() const { return hex(::XXH3_64bits_digest(hash_.get())); }

 private:
  bool fill() {
    const auto want = static_cast<std::size_t>(std::min<std::int64_t>(left_, kBlock));
    block_.resize(want);
    at_ = 0;
    if (want == 0 || !in_.read(block_.data(), static_cast<std::streamsize>(want))) {
      block_.clear();
      return false;
    }
    left_ -= static_cast<std::int64_t>(want);
    ::XXH3_64bits_update(hash_.get(), block_.data(), want);
    return true;
  }

  fs::path file_;
  std::ifstream in_;
  std::int64_t left_;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_;
  std::string block_;
  std::size_t at_ = 0;
};

/// The documents of a segment; false when it is damaged.
bool read_segment(const fs::path& file, const Segment& segment, std::size_t width,
                  const std::function<void(std::span<const std::int32_t>)>& sink) {
  SegmentReader reader(file, segment);
  std::vector<std::int32_t> ids;
  std::vector<std::uint16_t> narrow;
  std::int64_t left = segment.counts.bytes;
  for (std::int64_t k = 0; k < segment.counts.documents; ++k) {
    std::uint32_t count = 0;
    left -= static_cast<std::int64_t>(sizeof count);
    if (left < 0 || !reader.read(&count, sizeof count)) return false;
    left -= static_cast<std::int64_t>(count * width);
    if (left < 0) return false;
    ids.resize(count);
    if (width == sizeof(std::int32_t)) {
      if (!reader.read(ids.data(), count * width)) return false;
    } else {
      narrow.resize(count);
      if (!reader.read(narrow.data(), count * width)) return false;
      std::ranges::copy(narrow, ids.begin());
    }
    sink(ids);
  }
  return left == 0 && reader.hash() == segment.xxh3;
}

}  // namespace

void PartCounts::add(const PartCounts& other) {
  read.add(other.read);
  documents += other.documents;
  empty += other.empty;
  tokens += other.tokens;
}

PartBuffer::PartBuffer(std::int64_t vocab) : vocab_(vocab), width_(vocab <= 65536 ? 2 : 4) {}

void PartBuffer::add(std::string_view language, std::span<const std::int32_t> ids) {
  auto found = segments_.find(language);
  if (found == segments_.end()) {
    if (segments_.size() == kMostLanguages) {
      throw IoError("more than " + std::to_string(kMostLanguages) + " languages, the last one \"" +
                    std::string(language) +
                    "\": is that key really the language? Each is written into files of its own");
    }
    found = segments_.emplace(std::string(language), Segment()).first;
  }
  Segment& segment = found->second;
  const auto count = static_cast<std::uint32_t>(ids.size());
  const std::size_t at = segment.bytes.size();
  segment.bytes.resize(at + sizeof count + ids.size() * width_);
  char* to = segment.bytes.data() + at;
  std::memcpy(to, &count, sizeof count);
  to += sizeof count;
  // One pass to check and to narrow: `wrong` collects the sign and whatever lies above the vocabulary.
  std::int64_t wrong = 0;
  const std::int64_t last = vocab_ - 1;
  if (width_ == 2) {
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const std::int32_t id = ids[k];
      wrong |= static_cast<std::int64_t>(id) | (last - id);
      const auto narrow = static_cast<std::uint16_t>(id);
      std::memcpy(to + 2 * k, &narrow, 2);
    }
  } else {
    for (const std::int32_t id : ids) wrong |= static_cast<std::int64_t>(id) | (last - id);
    std::memcpy(to, ids.data(), ids.size_bytes());
  }
  if (wrong < 0) {
    const auto bad = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id > last; });
    throw IoError("the tokenizer made id " + std::to_string(*bad) + ", which is outside 0 to " + std::to_string(last) +
                  ", its own vocabulary; nothing is wrapped");
  }
  ++segment.documents;
  segment.tokens += std::ssize(ids);
}

PartFolder::PartFolder(fs::path folder, std::string job, std::int64_t vocab)
    : folder_(std::move(folder)), job_(std::move(job)), width_(vocab <= 65536 ? 2 : 4) {}

PartFolder::~PartFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void PartFolder::clear() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) fs::remove(entry.path(), error);
}

void PartFolder::open(bool restart) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw IoError(folder_.string(), "cannot be made", error.value());
  lock_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(folder_.string() + ": another process writes this output now; wait for it, or name another --output");
  }
  if (restart) clear();
  if (const auto found = content_of(folder_ / kJobFile)) {
    if (*found != job_) refuse_other_job(*found);
  } else {
    clear();  // killed before it had begun
    const fs::path temporary = folder_ / (std::string(kJobFile) + ".tmp");
    write_file(temporary, {std::string_view(job_)});
    fs::rename(temporary, folder_ / kJobFile, error);
    if (error) throw IoError((folder_ / kJobFile).string(), "cannot be written", error.value());
  }
  fs::remove(folder_ / kFlagFile, error);
  // Half-written pieces of a killed run; nobody else writes here yet.
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() == ".tmp") fs::remove(entry.path(), error);
  }
}

void PartFolder::refuse_other_job(const std::string& found) const {
  const auto lines = [](const std::string& text) {
    std::vector<std::string> result(1);
    for (const char c : text) c == '\n' ? result.emplace_back() : result.back() += c;
    return result;
  };
  const std::vector<std::string> old = lines(found), now = lines(job_);
  std::size_t at = 0;
  while (at < old.size() && at < now.size() && old[at] == now[at]) ++at;
  throw IoError(folder_.string() + ": holds the finished pieces of another command (there: \"" +
                (at < old.size() ? old[at] : "") + "\", now: \"" + (at < now.size() ? now[at] : "") +
                "\"); repeat that command to finish it, or give --restart to drop them");
}

void PartFolder::join() const {
  const auto found = content_of(folder_ / kJobFile);
  if (!found) {
    throw IoError(folder_.string() +
                  ": this rank does not see the folder that rank 0 made; the output must lie on a file system that all "
                  "ranks share");
  }
  if (*found != job_) {
    throw IoError(
        folder_.string() +
        ": this rank sees other input files (size or time) than rank 0 does; the input must be the same on all ranks");
  }
}

void PartFolder::scan() {
  known_.clear();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kExtension) continue;
    const std::string name = entry.path().stem().string();
    PieceKey key;
    const char* end = name.data() + name.size();
    const auto file = std::from_chars(name.data(), end, key.file);
    if (file.ec != std::errc() || file.ptr == end || std::from_chars(file.ptr + 1, end, key.piece).ptr != end) continue;
    if (auto header = read_header(entry.path())) known_.emplace(key, std::move(header->info));
  }
  if (error) throw IoError(folder_.string(), "cannot be read", error.value());
}

bool PartFolder::has_all(int file) const {
  std::int64_t next = 0;
  for (auto at = known_.lower_bound(PieceKey{file, 0}); at != known_.end() && at->first.file == file; ++at) {
    if (at->first.piece != next++) return false;
    if (at->second.last) return true;
  }
  return false;
}

fs::path PartFolder::file_of(PieceKey key) const {
  return folder_ / fmt::format("{:06}_{:09}{}", key.file, key.piece, kExtension);
}

void PartFolder::write(const Piece& piece, const PartBuffer& buffer, const PartCounts& counts) const {
  Json segments = Json::array();
  std::vector<std::string_view> contents;
  for (const auto& [language, segment] : buffer.segments_) {
    segments.push_back({{"language", language},
                        {"bytes", segment.bytes.size()},
                        {"documents", segment.documents},
                        {"tokens", segment.tokens},
                        {"xxh3", hex(::XXH3_64bits(segment.bytes.data(), segment.bytes.size()))}});
    contents.push_back(segment.bytes);
  }
  const Json header{{"last", piece.last}, {"counts", to_json(counts)}, {"segments", segments}};
  const fs::path file = file_of(PieceKey{piece.file, piece.number});
  fs::path temporary = file;
  temporary += ".tmp";
  const std::string first = header.dump() + '\n';
  contents.insert(contents.begin(), first);
  write_file(temporary, contents);
  std::error_code error;
  fs::rename(temporary, file, error);
  if (error) throw IoError(file.string(), "cannot be given its name", error.value());
}

void PartFolder::stop_behind(PieceKey piece) const {
  try {
    write_file(folder_ / kFlagFile, {std::to_string(piece.file) + " " + std::to_string(piece.piece)});
  } catch (const IoError&) {
    return;  // the others go on to their end, and learn it then
  }
}

std::optional<PieceKey> PartFolder::stopped_behind() const {
  std::ifstream in(folder_ / kFlagFile);
  if (!in) return std::nullopt;
  PieceKey key;
  in >> key.file >> key.piece;
  return in ? key : PieceKey{0, -1};  // caught while it was being written: stop at once
}

std::vector<PartInfo> PartFolder::infos(int files) const {
  std::vector<PartInfo> all;
  for (int file = 0; file < files; ++file) {
    if (!has_all(file)) {
      throw IoError(folder_.string() + ": pieces of input " + std::to_string(file + 1) +
                    " are missing, or not seen yet by this rank; run the same command again");
    }
  }
  for (const auto& [key, info] : known_) all.push_back(info);
  return all;
}

void PartFolder::read(std::string_view language, const std::function<void(std::span<const std::int32_t>)>& sink) const {
  for (const auto& [key, info] : known_) {
    if (!info.languages.contains(language)) continue;
    const fs::path file = file_of(key);
    const auto header = read_header(file);
    const bool good = header && std::ranges::all_of(header->segments, [&](const Segment& segment) {
                        return segment.language != language || read_segment(file, segment, width_, sink);
                      });
    if (good) continue;
    std::error_code error;
    fs::remove(file, error);
    throw IoError(file.string() + ": is damaged and was removed; run the same command again, which makes it anew");
  }
}

void PartFolder::remove() const {
  std::error_code error;
  fs::remove_all(folder_, error);
  if (error)
    throw IoError(folder_.string(), "cannot be removed; the output is whole, remove it by hand", error.value());
}

}  // namespace espalier::app
