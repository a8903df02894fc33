// The guarantee of the exact exchange for many settings, which takes long.

#include "train/run_spec.hpp"

#include <tuple>

namespace tutti {
namespace {

using Choice = std::tuple<const char*, std::int64_t, LastBatch, Shuffle, Precision>;

std::string name(const testing::TestParamInfo<Choice>& given) {
  const auto [model, batch, last, shuffle, precision] = given.param;
  return fmt::format("{}_{}_{}_{}_{}", model, batch, name_of(last), name_of(shuffle), name_of(precision));
}

class ExactRuns : public testing::TestWithParam<Choice> {};
INSTANTIATE_TEST_SUITE_P(All, ExactRuns,
                         testing::Combine(testing::Values("lenet"), testing::Values(16, 19),
                                          testing::Values(LastBatch::keep, LastBatch::discard, LastBatch::rollover),
                                          testing::Values(Shuffle::global, Shuffle::partition),
                                          testing::Values(Precision::fp32, Precision::bf16)),
                         name);
// Every pair of choices.
INSTANTIATE_TEST_SUITE_P(
    Pairs, ExactRuns,
    testing::Values(Choice("resnet18", 16, LastBatch::keep, Shuffle::global, Precision::fp32),
                    Choice("resnet18", 19, LastBatch::keep, Shuffle::partition, Precision::bf16),
                    Choice("resnet18", 16, LastBatch::discard, Shuffle::partition, Precision::bf16),
                    Choice("resnet18", 19, LastBatch::discard, Shuffle::global, Precision::fp32),
                    Choice("resnet18", 16, LastBatch::rollover, Shuffle::global, Precision::bf16),
                    Choice("resnet18", 19, LastBatch::rollover, Shuffle::partition, Precision::fp32)),
    name);

TEST_P(ExactRuns, AreTheSameOnOneToEightRanks) {
  const auto [model, batch, last, shuffle, precision] = GetParam();
  RunSpec spec = small_run(built_in_model(model), {.kind = Exchange::exact});
  spec.precision = precision;
  spec.options.batch_size = batch;
  spec.options.last_batch = last;
  spec.options.shuffle = shuffle;
  expect_the_same(on_ranks(spec, {1, 7, 2, 6, 3, 5, 4, 8}), open_small("synthetic:200x1x28x28:10").pair);
}

}  // namespace
}  // namespace tutti
