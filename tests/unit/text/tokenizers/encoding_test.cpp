// Merging against the plain algorithm, the word cache, threads, decoding and what a recipe sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "espalier/error.hpp"
#include "text/tokenizers/byte_symbols.hpp"
#include "text/tokenizers/word_cache.hpp"
#include "text/utf8.hpp"
#include "unit/text/tokenizers/files.hpp"

namespace espalier::app::tokenizers_test {
namespace {

using ::testing::HasSubstr;

/// Byte-pair encoding as its definition says it, in cubic time.
class PlainEncoder {
 public:
  explicit PlainEncoder(const Json& file) {
    for (const auto& [token, id] : file.at("model").at("vocab").items()) ids_[token] = id;
    for (const auto& merge : file.at("model").at("merges")) {
      const std::pair<std::string, std::string> pair(merge[0], merge[1]);
      ranks_.emplace(pair, ranks_.size());
    }
  }

  Ids encode(std::string_view piece) const {
    std::vector<std::string> symbols;
    for (const char byte : piece) symbols.push_back(symbols_of_bytes({&byte, 1}));
    for (;;) {
      std::size_t best = 0, rank = SIZE_MAX;
      for (std::size_t k = 0; k + 1 < symbols.size(); ++k) {
        const auto found = ranks_.find({symbols[k], symbols[k + 1]});
        if (found != ranks_.end() && found->second < rank) {
          rank = found->second;
          best = k;
        }
      }
      if (rank == SIZE_MAX) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& symbol : symbols) ids.push_back(ids_.at(symbol));
    return ids;
  }

 private:
  std::map<std::string, std::int32_t> ids_;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks_;
};

/// Pieces of BLOOM's pattern: no stops and no spaces in them, of letters that merge a lot.
std::string random_piece(std::mt19937& random, std::size_t length) {
  static const std::string kLetters = "eeeetttaaoinsrhl~~~~--dcum";
  std::string piece;
  for (std::size_t k = 0; k < length; ++k) piece += kLetters[random() % kLetters.size()];
  return piece;
}

// GPT-2's own file is older than what libraries write today: no type of the model, affixes that are empty texts, merges
// as one text, no use_regex (which is then true), an added token that is "normalized" and stands in the vocabulary.
TEST(TokenizerEncoding, TheLayoutOfGpt2sOwnFile) {
  const Json today = Json::parse(std::ifstream(ESPALIER_FIXTURES_DIR "/model/tokenizer/gpt2_tokenizer.json"));
  Json own = today;
  own.erase("truncation");
  own["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  own["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}};
  own["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}};
  for (Json& added : own["added_tokens"]) added["normalized"] = true;
  Json& model = own["model"];
  for (const char* key : {"type", "byte_fallback", "ignore_merges"}) model.erase(key);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) model[key] = "";
  for (Json& merge : model["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto a = make(today), b = make(own);
  EXPECT_EQ(b->vocab_size(), 1000);
  EXPECT_EQ(b->end_of_document(), 2);
  for (const std::string text :
       {"Hello world, it's 2026</s>  \n\nnext", "na\u00efve \u65e5\u672c ~~~~", " </s><pad> x", ""}) {
    EXPECT_EQ(encode(*b, text), encode(*a, text)) << text;
    EXPECT_EQ(b->decode(encode(*b, text), true), text);
  }
}

TEST(TokenizerEncoding, ShortAndLongPiecesFollowTheDefinition) {
  const Json file = bloom_file();
  const PlainEncoder plain(file);
  const auto tokenizer = make(file);
  std::mt19937 random(5);
  for (std::size_t length = 2; length < 200; length += 1 + length / 30) {
    for (int round = 0; round < 8; ++round) {
      const std::string piece = random_piece(random, length);
      EXPECT_EQ(encode(*tokenizer, piece), plain.encode(piece)) << piece;
    }
  }
  const std::string run(150, '~');
  EXPECT_EQ(encode(*tokenizer, run), plain.encode(run));
}

TEST(TokenizerEncoding, AppendsToWhatIsThere) {
  const auto tokenizer = make(bloom_file());
  Ids ids = {7};
  tokenizer->encode("</s>", ids);
  EXPECT_EQ(ids, (Ids{7, 2}));
}

// T08: no space is put in front where the file does not ask for one.
TEST(TokenizerEncoding, PrefixSpaceIsWhatTheFileSays) {
  Json file = bloom_file();
  const auto without = make(file);
  EXPECT_EQ(encode(*without, "And here")[0], encode(*without, "And")[0]);
  EXPECT_EQ(without->decode(encode(*without, "And here")), "And here");
  file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  const auto with = make(file);
  EXPECT_EQ(encode(*with, "And"), encode(*without, " And"));
}

// T05: without a normaliser a letter with an accent and a letter and an accent are different texts, and both come back.
TEST(TokenizerEncoding, AccentsStayAsTheyAreWithoutANormalizer) {
  const auto tokenizer = make(bloom_file());
  const std::string composed = "\u00E1", apart = "a\u0301";
  EXPECT_NE(encode(*tokenizer, composed), encode(*tokenizer, apart));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, composed)), composed);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, apart)), apart);
  Json file = bloom_file();
  file["normalizer"] = {{"type", "NFC"}};
  const auto nfc = make(file);
  EXPECT_EQ(encode(*nfc, apart), encode(*tokenizer, composed));
}

TEST(TokenizerEncoding, ManyThreadsGiveTheIdsOfOne) {
  const auto tokenizer = make(bloom_file());
  std::mt19937 random(11);
  std::vector<std::string> texts;
  for (int k = 0; k < 400; ++k) {
    std::string text;
    for (int word = 0; word < 30; ++word) text += random_piece(random, 1 + random() % 12) + ' ';
    texts.push_back(std::move(text));
  }
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(encode(*make(bloom_file()), text));
  std::vector<std::vector<Ids>> found(4, std::vector<Ids>(texts.size()));
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (std::size_t k = 0; k < texts.size(); ++k) tokenizer->encode(texts[k], mine[k]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : found) EXPECT_EQ(mine, expected);
}

TEST(TokenizerEncoding, TokensCutWithinACharacterStream) {
  const auto tokenizer = make(bloom_file());
  const std::string text = "日本 😀 é";
  std::string whole, streamed;
  Utf8Stream stream;
  for (const std::int32_t id : encode(*tokenizer, text)) {
    const std::string piece = stream.push(tokenizer->decode({&id, 1}));
    EXPECT_EQ(find_invalid_utf8(piece), std::string::npos);
    streamed += piece;
  }
  EXPECT_EQ(streamed + stream.finish(), text);
}

TEST(TokenizerEncoding, EndOfDocument) {
  EXPECT_EQ(make(bloom_file())->end_of_document(), 2);
  EXPECT_EQ(make(bloom_file(), "<pad>")->end_of_document(), 3);
  EXPECT_EQ(make(bloom_file(), "!")->end_of_document(), 4);
  try {
    make(bloom_file(), "<end>");
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no token \"<end>\""));
  }
  Json file = bloom_file();
  for (auto& token : file["added_tokens"]) token["content"] = "[" + std::to_string(token["id"].get<int>()) + "]";
  for (const char* name : {"<unk>", "<s>", "</s>", "<pad>"}) file["model"]["vocab"].erase(name);
  EXPECT_EQ(make(file)->end_of_document(), -1);
}

TEST(TokenizerEncoding, FingerprintFollowsTheContent) {
  const auto first = make(bloom_file())->fingerprint();
  EXPECT_TRUE(first.starts_with("tokenizer.json:"));
  EXPECT_EQ(first.size(), std::string("tokenizer.json:").size() + 16);
  Json file = bloom_file();
  file["added_tokens"].push_back({{"id", 1000}, {"content", "<new>"}});
  EXPECT_NE(make(file)->fingerprint(), first);
  EXPECT_EQ(make(bloom_file())->fingerprint(), first);
}

TEST(TokenizerEncoding, DecodeSkipsIdsThatAreNone) {
  const auto tokenizer = make(bloom_file());
  EXPECT_EQ(tokenizer->decode(Ids{-1, 4, 1000, 2147483647, 5}), "!\"");
}

// Enough pieces that the cache starts anew several times; equal lengths and common ends provoke mistaken hits.
TEST(WordCache, NeverGivesTheIdsOfAnotherPiece) {
  WordCache cache;
  Ids ids;
  const auto piece_of = [](int k) {
    const std::string number = std::to_string(k * 7919);
    return std::string(static_cast<std::size_t>(k % 40), 'x') + number +
           std::string(static_cast<std::size_t>(k % 3), 'y');
  };
  int found = 0;
  for (int k = 0; k < 600000; ++k) {
    const int n = k % 5 == 4 ? k / 2 : k;
    const std::string piece = piece_of(n);
    const auto key = WordCache::key_of(piece);
    ids.clear();
    if (cache.find(piece, key, ids)) {
      ++found;
    } else {
      ids.assign(static_cast<std::size_t>(1 + n % 4), n);
      cache.insert(piece, key, ids);
      ids.clear();
      ASSERT_TRUE(cache.find(piece, key, ids));
    }
    ASSERT_EQ(ids, Ids(static_cast<std::size_t>(1 + n % 4), n)) << piece;
  }
  EXPECT_GT(found, 10000);
}

// Pieces made from the constant of the hash, so that they have one place and one key: only their bytes or lengths
// differ.
TEST(WordCache, PiecesOfEqualHashAreToldApart) {
  const std::string constant = "\xA5\x78\x6C\xAA\xCC\x8D\x35\x2D";  // 0x2D358DCCAA6C78A5
  const std::string pieces[] = {"12345678" + constant + "tail----", "87654321" + constant + "tail----",
                                constant + "1234567", constant + constant[7] + "1234567"};
  EXPECT_EQ(WordCache::key_of(pieces[0]).hash, WordCache::key_of(pieces[1]).hash);
  EXPECT_EQ(WordCache::key_of(pieces[2]).hash, WordCache::key_of(pieces[3]).hash);
  EXPECT_EQ(WordCache::key_of(pieces[2]).high, WordCache::key_of(pieces[3]).high);
  WordCache cache;
  for (std::int32_t k = 0; k < 4; ++k) {
    const auto key = WordCache::key_of(pieces[k]);
    Ids ids;
    EXPECT_FALSE(cache.find(pieces[k], key, ids)) << k;
    cache.insert(pieces[k], key, Ids{k});
  }
  for (std::int32_t k = 0; k < 4; ++k) {
    Ids ids;
    EXPECT_TRUE(cache.find(pieces[k], WordCache::key_of(pieces[k]), ids));
    EXPECT_EQ(ids, Ids{k});
  }
}

}  // namespace
}  // namespace espalier::app::tokenizers_test
