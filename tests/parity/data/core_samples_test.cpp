// Arrays and samples as Megatron-LM core makes them (fixtures gpt_megatron_core/), and where both peers agree.
#include "cache.hpp"
#include "espalier/error.hpp"
#include "npy.hpp"
#include "parity/data/support.hpp"
#include "sample_reader.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

constexpr std::int32_t kPadOfTheCase = 7;  // real_pad_token

SampleRules rules_of(const nlohmann::json& truth, bool validation) {
  return {Sampling::megatron_core, truth["add_extra_token_to_sequence"].get<bool>(),
          validation && !truth["drop_last_partial_validation_sequence"].get<bool>()};
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Tokens, labels and loss mask of every sample in order, as the fixtures hash them; checks the samples that are spelt
/// out.
std::string all_bytes(const SampleReader& reader, const nlohmann::json& truth) {
  const auto length = static_cast<std::size_t>(reader.arrays().plan().seq_length);
  std::string bytes;
  std::vector<std::int32_t> tokens(length + 1);
  for (std::int64_t i = 0; i < reader.samples(); ++i) {
    std::vector<std::uint8_t> mask(length, 1);
    reader.read(i, tokens, mask);
    for (std::size_t k = 0; k < length; ++k) append(bytes, std::int64_t{tokens[k]});
    for (std::size_t k = 1; k <= length; ++k) append(bytes, std::int64_t{tokens[k]});
    for (std::size_t k = 0; k < length; ++k) append(bytes, static_cast<float>(mask[k]));
    if (!truth.contains("samples") || !truth["samples"].contains(std::to_string(i))) continue;
    const auto& sample = truth["samples"][std::to_string(i)];
    std::vector<std::int64_t> zeros;
    for (std::size_t k = 0; k < length; ++k) {
      if (mask[k] == 0) zeros.push_back(static_cast<std::int64_t>(k));
    }
    EXPECT_EQ(zeros, as_vector<std::int64_t>(sample["loss_mask_zeros"])) << "sample " << i;
    if (sample.contains("tokens")) {
      EXPECT_EQ(std::vector<std::int32_t>(tokens.begin(), tokens.end() - 1), as_vector<std::int32_t>(sample["tokens"]));
      EXPECT_EQ(std::vector<std::int32_t>(tokens.begin() + 1, tokens.end()), as_vector<std::int32_t>(sample["labels"]));
    } else {
      const std::vector<std::int64_t> text(tokens.begin(), tokens.end());
      EXPECT_EQ(sha256_of<std::int64_t>(text), sample["text_sha256"].get<std::string>());
    }
    std::vector<std::int64_t> documents, lengths;
    for (const SamplePiece& piece : reader.pieces(i)) {
      documents.push_back(piece.document);
      lengths.push_back(piece.count);
    }
    EXPECT_EQ(documents, as_vector<std::int64_t>(sample["document_ids"])) << "sample " << i;
    EXPECT_EQ(lengths, as_vector<std::int64_t>(sample["part_lengths"])) << "sample " << i;
  }
  return bytes;
}

class CoreSamplesParity : public ::testing::TestWithParam<std::string> {};

TEST_P(CoreSamplesParity, SameArraysAndSamples) {
  const std::string fixture = "gpt_megatron_core/" + GetParam() + "/";
  const auto truth = read_json(data_fixture(fixture + "case.json"));
  const TemporaryFolder folder;
  const auto file = IndexedFile::open(copy_pair(truth["corpus"].get<std::string>(), folder));
  const auto ranges = split_ranges(truth["split_string"].get<std::string>(), file.sequences(), Sampling::megatron_core);
  const std::string names[] = {"train", "valid", "test"};
  int compared = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    SCOPED_TRACE(names[k]);
    const auto& expected = truth["splits"][names[k]];
    if (expected.is_null()) continue;
    EXPECT_EQ(ranges[k], (SequenceRange{expected["documents_begin_end"][0], expected["documents_begin_end"][1]}));
    const auto& wanted = truth["num_samples"][k];
    const IndexRequest request{&file,
                               "",
                               names[k],
                               ranges[k],
                               wanted.is_null() ? 0 : wanted.get<std::int64_t>(),
                               truth["seq_length"],
                               truth["seed"],
                               rules_of(truth, k == 1)};
    store_index(request, {{}, false});
    const IndexArrays arrays = load_index(request);
    EXPECT_EQ(arrays.plan().tokens_per_epoch, expected["tokens_per_epoch"].get<std::int64_t>());
    EXPECT_EQ(arrays.plan().epochs, expected["num_epochs"].get<std::int64_t>());
    EXPECT_EQ(arrays.plan().separate_last_epoch, expected["separate_last_epoch"].get<bool>());
    EXPECT_EQ(arrays.samples(), expected["num_samples_built"].get<std::int64_t>());
    const CacheFiles files = cache_files(request);
    for (const auto& [array, path] :
         {std::pair{"document_index", files.document}, std::pair{"sample_index", files.sample},
          std::pair{"shuffle_index", files.shuffle}}) {
      EXPECT_EQ(read_file(path),
                read_file(data_fixture(fixture + expected["arrays"][array]["file"].get<std::string>())))
          << array;
    }
    const SampleReader reader(file, arrays, 0, GetParam() == "real_pad_token" ? kPadOfTheCase : -1);
    const std::string bytes = all_bytes(reader, expected);
    EXPECT_EQ(sha256(bytes.data(), bytes.size()), expected["all_tokens_labels_lossmask_sha256"].get<std::string>());
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

std::vector<std::string> core_cases() {
  std::vector<std::string> names;
  for (const auto& item : read_json(data_fixture("gpt_megatron_core/manifest.json"))) {
    names.push_back(item["case"].get<std::string>());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CoreSamplesParity, ::testing::ValuesIn(core_cases()),
                         [](const auto& param_info) { return param_info.param; });

template <typename T>
std::vector<T> array_of(const std::string& fixture) {
  std::string why;
  const auto array = NpyArray::open(data_fixture(fixture), why);
  EXPECT_TRUE(array) << why;
  EXPECT_EQ(array->descr(), npy_descr<T>());
  const auto* begin = reinterpret_cast<const T*>(array->data());
  return {begin, begin + array->elements()};
}

TEST(CoreSamples, TheWideSampleIndexHasTheSameValues) {
  const std::string folder = "gpt_megatron_core/int64_variant/";
  const auto truth = read_json(data_fixture(folder + "case.json"));
  const auto sizes = array_of<std::int32_t>(folder + "sizes.npy");
  const auto order = array_of<std::int32_t>(folder + "document_index.npy");
  const std::int64_t tokens = truth["tokens_per_epoch"];
  const std::int64_t length = truth["seq_length"];
  // As many samples as three epochs give.
  const EpochPlan plan = plan_epochs(tokens, (3 * tokens - 1) / length, length, {Sampling::megatron_core});
  ASSERT_EQ(plan.epochs, truth["num_epochs"].get<std::int64_t>());
  const auto rows = std::get<1>(build_sample_index(plan, order, reinterpret_cast<const std::byte*>(sizes.data()),
                                                   static_cast<std::int64_t>(sizes.size()), "sizes", 64));
  EXPECT_EQ(rows, array_of<std::int64_t>(folder + "sample_index.npy"));
  EXPECT_EQ(sha256_of<std::int64_t>(rows), truth["sample_index_sha256"].get<std::string>());
}

/// Counts of the partial sample in whole numbers, where core's 32-bit floats are off by one or more.
TEST(CoreSamples, PartialSamplesAreCountedInWholeNumbers) {
  const SampleRules keep{Sampling::megatron_core, true, true};
  EXPECT_EQ(plan_epochs((std::int64_t{1} << 25) + 3, 0, 2, keep).samples, 16777217);
  EXPECT_EQ(plan_epochs((std::int64_t{1} << 25) + 7, 0, 2, keep).samples, 16777219);
  EXPECT_EQ(plan_epochs((std::int64_t{1} << 27) + 10, 0, 3, keep).samples, 44739246);
}

/// core stops when the last document of the shuffled order is empty and the partial sample is kept.
TEST(CoreSamples, APartialSampleEndsWithTheLastToken) {
  const std::vector<std::int32_t> sizes = {6, 0};
  const std::vector<std::int32_t> order = {0, 1};
  const EpochPlan plan = plan_epochs(6, 0, 4, {Sampling::megatron_core, true, true});
  const auto rows =
      std::get<0>(build_sample_index(plan, order, reinterpret_cast<const std::byte*>(sizes.data()), 2, "sizes", 32));
  EXPECT_EQ(rows, (std::vector<std::int32_t>{0, 0, 0, 4, 0, 5}));
}

TEST(CoreSamples, BothPeersAgreeWhereTheirRulesDo) {
  const auto rows = read_json(data_fixture("cross_check.json"));
  ASSERT_GE(rows.size(), 3U);
  for (const auto& row : rows) {
    const auto split_name = [](const std::string& text) {
      return std::pair{text.substr(0, text.find('/')), text.substr(text.find('/') + 1)};
    };
    const auto [their_case, set] = split_name(row["bigscience"].get<std::string>());
    const auto truth = read_json(data_fixture("gpt_bigscience/" + their_case + "/case.json"));
    const auto file = IndexedFile::open(data_fixture(truth["corpus"].get<std::string>()));
    const auto& expected = truth["splits"][set];
    const SequenceRange range{expected["documents_begin_end"][0], expected["documents_begin_end"][1]};
    const auto plan = [&](Sampling sampling) {
      return plan_epochs(file.tokens_in(range.begin, range.end), truth["num_samples"][0], truth["seq_length"],
                         {sampling});
    };
    EXPECT_EQ(plan(Sampling::bigscience).separate_last_epoch == plan(Sampling::megatron_core).separate_last_epoch,
              row["equal"]["doc_idx"].get<bool>())
        << row;
  }
}

}  // namespace
}  // namespace espalier::data_indexed
