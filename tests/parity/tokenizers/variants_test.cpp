// Files that differ from the fixtures in one thing each: pre-tokenizers, normal forms, flags of added tokens. What PyPI
// tokenizers makes of them was written by make_variants.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizers/huggingface_tokenizer.hpp"

namespace espalier::app {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kFolder = ESPALIER_FIXTURES_DIR "/model/";

nlohmann::json read(const std::string& name) { return nlohmann::json::parse(std::ifstream(kFolder + name)); }

TEST(TokenizerVariants, IdsAreThoseOfTokenizers) {
  const auto recorded = read("tokenizer_variants/variants.json");
  const auto texts = recorded.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(recorded.at("variants").size(), 30u);
  for (const auto& variant : recorded.at("variants")) {
    const auto name = variant.at("name").get<std::string>();
    SCOPED_TRACE(name);
    auto file = read("tokenizer/" + variant.at("base").get<std::string>() + "_tokenizer.json");
    file.merge_patch(variant.at("patch"));
    for (const auto& token : variant.at("add")) file.at("added_tokens").push_back(token);
    const HuggingFaceTokenizer tokenizer(parse_tokenizer_file(file.dump(), name), "");
    for (std::size_t k = 0; k < texts.size(); ++k) {
      Ids ids;
      tokenizer.encode(texts[k], ids);
      EXPECT_EQ(ids, variant.at("ids").at(k).get<Ids>()) << testing::PrintToString(texts[k]);
    }
  }
}

// T01: added tokens come back as they were written, letters outside of ASCII included.
TEST(TokenizerVariants, AddedTokensDecodeToTheirContent) {
  auto file = read("tokenizer/bloom_tokenizer.json");
  file.at("added_tokens").push_back({{"id", 1000}, {"content", "ilÖveyou"}, {"special", false}});
  file.at("added_tokens").push_back({{"id", 1001}, {"content", "<naïve>"}, {"special", true}});
  const HuggingFaceTokenizer tokenizer(parse_tokenizer_file(file.dump(), "test"), "");
  Ids ids;
  tokenizer.encode("ilÖveyou<naïve>", ids);
  EXPECT_EQ(ids, (Ids{1000, 1001}));
  EXPECT_EQ(tokenizer.decode(ids, true), "ilÖveyou<naïve>");
  EXPECT_EQ(tokenizer.decode(ids), "ilÖveyou");
}

}  // namespace
}  // namespace espalier::app
