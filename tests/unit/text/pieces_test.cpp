#include "text/pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>

#include "espalier/error.hpp"
#include "text/byte_source.hpp"
#include "unit/text/files.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using text_test::Folder;

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

struct Seen {
  std::vector<std::string> documents;
  ReadCounts counts;
  std::int64_t pieces = 0;
  bool operator==(const Seen& other) const {
    return documents == other.documents && counts.bytes == other.counts.bytes && counts.lines == other.counts.lines &&
           counts.blank_lines == other.counts.blank_lines && counts.skipped == other.counts.skipped;
  }
};

/// Pieces in the order of the input, of all ranks together.
Seen read(const std::vector<std::string>& files, const DocumentRules& rules, std::int64_t piece_bytes, int ranks = 1) {
  std::map<std::pair<int, std::int64_t>, Seen> pieces;
  for (int rank = 0; rank < ranks; ++rank) {
    PieceQueue queue(files, rules, {rank, ranks, piece_bytes}, {});
    while (const auto piece = queue.next()) {
      auto [at, fresh] = pieces.try_emplace({piece->file, piece->number});
      EXPECT_TRUE(fresh) << "two ranks have piece " << piece->number;
      read_piece(files[static_cast<std::size_t>(piece->file)], *piece, rules, at->second.counts,
                 [&](std::string_view text, std::string_view) { at->second.documents.emplace_back(text); });
    }
  }
  Seen all;
  for (auto& [key, seen] : pieces) {
    all.documents.insert(all.documents.end(), seen.documents.begin(), seen.documents.end());
    all.counts.add(seen.counts);
    ++all.pieces;
  }
  return all;
}

constexpr std::int64_t kWhole = std::int64_t{1} << 30;

/// Lines and blank lines of all kinds of lengths, some of them too long, some faulty.
std::string random_lines(std::mt19937& random, bool jsonl) {
  std::string text;
  const auto lines = random() % 60;
  for (unsigned k = 0; k < lines; ++k) {
    const auto kind = random() % 10;
    const std::size_t size = random() % (random() % 8 == 0 ? 400 : 40);
    std::string content(size, static_cast<char>('a' + random() % 26));
    if (kind == 0 || kind == 1)
      content = kind == 0 ? "" : " \t";
    else if (jsonl && kind != 2)
      content = "{\"text\":\"" + content + "\"}";
    text += content + (random() % 6 == 0 ? "\r\n" : "\n");
  }
  if (random() % 2 == 0 && !text.empty()) text.pop_back();
  return text;
}

// Whatever the size of the pieces and the number of ranks: the same documents in the same order.
TEST(Pieces, CutsChangeNothing) {
  std::mt19937 random(7);
  const Folder folder;
  for (int round = 0; round < 60; ++round) {
    const bool jsonl = round % 2 == 0;
    DocumentRules rules;
    rules.skip_bad_lines = true;
    rules.split_paragraphs = !jsonl;
    rules.longest = 150;
    const std::string text = random_lines(random, jsonl), name = jsonl ? "a.jsonl" : "a.txt";
    const std::vector<std::string> plain = {folder.write(name, text)};
    const std::vector<std::string> packed = {folder.write(name + ".gz", gzipped(text))};
    const Seen whole = read(plain, rules, kWhole);
    EXPECT_EQ(whole.pieces, 1);
    for (const std::int64_t size : {1, 7, 64, 300}) {
      const Seen cut = read(plain, rules, size, 1 + round % 3);
      EXPECT_TRUE(cut == whole) << text << "\npieces of " << size;
      Seen unpacked = read(packed, rules, size, 1 + round % 3);
      unpacked.counts.bytes = whole.counts.bytes;
      EXPECT_TRUE(unpacked == whole) << text << "\nunpacked, pieces of " << size;
    }
  }
}

// Found by the fuzzer: a cut within or right behind the byte order mark lost the first line, or the border behind it.
TEST(Pieces, TheByteOrderMarkBelongsToTheFirstLine) {
  const Folder folder;
  for (const bool jsonl : {true, false}) {
    DocumentRules rules;
    rules.split_paragraphs = !jsonl;
    for (const std::string& rest : {std::string("{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), std::string("\n{\"text\":\"a\"}")}) {
      const std::vector<std::string> file = {folder.write(jsonl ? "a.jsonl" : "a.txt", "\xEF\xBB\xBF" + rest)};
      const Seen whole = read(file, rules, kWhole);
      EXPECT_FALSE(whole.documents.empty());
      for (const std::int64_t size : {1, 2, 3, 4, 5}) EXPECT_TRUE(read(file, rules, size) == whole) << rest << size;
    }
  }
}

// The number of a line in a message does not depend on the cuts.
TEST(Pieces, FaultsKeepTheirLineNumbers) {
  const Folder folder;
  std::string text;
  for (int line = 1; line < 100; ++line) text += line == 77 ? "{\n" : line % 9 == 0 ? "\n" : "{\"text\":\"abc\"}\n";
  for (const auto& file : {folder.write("a.jsonl", text), folder.write("b.jsonl.gz", gzipped(text))}) {
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{50}, kWhole}) {
      try {
        read({file}, {}, size);
        ADD_FAILURE() << "accepted";
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), HasSubstr(file + ":77: not JSON"));
      }
    }
  }
}

TEST(Pieces, PackedFilesOfSeveralMembers) {
  const Folder folder;
  const std::string one = "{\"text\":\"one\"}\n", two = "{\"text\":\"" + std::string(2 << 20, 'x') + "\"}\n";
  const auto gzip = folder.write("a.jsonl.gz", gzipped(one) + gzipped(two) + gzipped("") + std::string(512, '\0'));
  const auto zstd = folder.write("a.jsonl.zst", zstandard(one) + zstandard(two));
  for (const auto& file : {gzip, zstd}) {
    EXPECT_THAT(read({file}, {}, 100).documents, ElementsAre("one", std::string(2 << 20, 'x')));
    EXPECT_EQ(read({file}, {}, 100).counts.bytes, static_cast<std::int64_t>(std::filesystem::file_size(file)));
  }
  EXPECT_THAT(read({folder.write("b.txt.gz", gzipped("a\n\nb"))}, {}, 1).documents, ElementsAre("a\n\nb"));
}

TEST(Pieces, DamagedPackedFilesAreRefused) {
  const Folder folder;
  std::string text;
  std::mt19937 random(3);
  for (int line = 0; line < 2000; ++line) text += "{\"text\":\"" + std::to_string(random()) + "\"}\n";
  const std::string gzip = gzipped(text), zstd = zstandard(text);
  const auto refusal = [&](const std::string& name, const std::string& bytes) -> std::string {
    try {
      read({folder.write(name, bytes)}, {}, kWhole);
    } catch (const IoError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("a.jsonl.gz", gzip.substr(0, gzip.size() - 3)),
              HasSubstr("a.jsonl.gz: ends within its gzip data"));
  EXPECT_THAT(refusal("a.jsonl.zst", zstd.substr(0, zstd.size() - 3)),
              HasSubstr("a.jsonl.zst: ends within its zstd data"));
  std::string flipped = gzip;
  flipped[gzip.size() / 2] = static_cast<char>(flipped[gzip.size() / 2] ^ 0x40);
  EXPECT_THAT(refusal("b.jsonl.gz", flipped), HasSubstr("b.jsonl.gz: gzip data are damaged"));
  EXPECT_THAT(refusal("c.jsonl.gz", gzip + "more"), HasSubstr("c.jsonl.gz: gzip data are damaged"));
  EXPECT_THAT(refusal("d.jsonl.gz", text), HasSubstr("is named .gz, but does not start as gzip data do"));
  EXPECT_THAT(refusal("e.jsonl.zst", ""), HasSubstr("is named .zst, but does not start as zstd data do"));
}

// Many packed files: a rank unpacks its own only. Few: all ranks unpack, and share the pieces.
TEST(Pieces, RanksShareThePieces) {
  const Folder folder;
  std::string text;
  for (int line = 0; line < 100; ++line) text += "{\"text\":\"" + std::to_string(line) + "\"}\n";
  const std::vector<std::string> one = {folder.write("a.jsonl.gz", gzipped(text))};
  std::vector<std::string> many(5, one.front());
  const auto pieces_of = [&](const std::vector<std::string>& files, int rank) {
    PieceQueue queue(files, {}, {rank, 3, 100}, {});
    std::int64_t count = 0;
    while (queue.next()) ++count;
    return count;
  };
  const Seen whole = read(one, {}, 100);
  const std::int64_t n = whole.pieces;
  EXPECT_EQ(pieces_of(one, 0) + pieces_of(one, 1) + pieces_of(one, 2), n);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_NEAR(static_cast<double>(pieces_of(one, rank)), static_cast<double>(n) / 3, 1);
  EXPECT_THAT((std::vector{pieces_of(many, 0), pieces_of(many, 1), pieces_of(many, 2)}), ElementsAre(2 * n, 2 * n, n));
}

}  // namespace
}  // namespace espalier::app
