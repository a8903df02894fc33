#include "tutti/train/optimizer.hpp"

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "backend/device_values.hpp"
#include "reference/optimizers.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"
#include "train/exchange.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::Device;
using testing_support::random_floats;

constexpr int kSteps = 4;
constexpr double kRate = 0.1;

// The layout has odd extents, every kind of parameter, one tensor longer than a block of the norms, and a frozen one.
ParameterLayout odd_layout() {
  ParameterLayout layout;
  layout.add("head/weight", ParameterKind::weight, Shape{3, 7});
  layout.add("head/bias", ParameterKind::bias, Shape{3});
  layout.add("norm/scale", ParameterKind::scale, Shape{5});
  layout.add("norm/shift", ParameterKind::shift, Shape{5});
  layout.add("conv/weight", ParameterKind::weight, Shape{5, 911});
  layout.add({.name = "stem/weight", .kind = ParameterKind::weight, .shape = Shape{7}, .frozen = true});
  layout.add("norm/mean", ParameterKind::mean, Shape{5});
  return layout;
}

struct Case {
  std::string name;
  OptimizerOptions options;
  double gradient_size = 1;  // odd_layout's norm is about 39 times this
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class OptimizerFormula : public testing::TestWithParam<Case> {
 protected:
  OptimizerFormula()
      : device_(make_cpu_backend()),
        layout_(odd_layout()),
        arena_(layout_, device_.backend(), device_.backend().allocate(layout_.block_bytes())) {
    device_.upload(arena_.weights(), random_floats(layout_.block_elements(), "weights"));
  }

  std::vector<reference::Tensor> tensors_of(const std::vector<float>& block) const {
    std::vector<reference::Tensor> tensors;
    for (const ParameterSlice& slice : layout_.trained()) {
      const bool is_weight = slice.kind == ParameterKind::weight;
      const bool spared = slice.frozen || (GetParam().options.exempts_norms_and_biases && !is_weight);
      const auto begin = block.begin() + slice.offset;
      tensors.push_back({.values = {begin, begin + slice.elements()}, .spared = spared});
    }
    return tensors;
  }

  void set_factors(reference::Tensor& tensor, std::size_t slice, std::int64_t epoch) const {
    for (const ParameterFactor& each : GetParam().options.lr_factors) {
      if (matches(each.pattern, layout_.trained()[slice]) && epoch >= each.from_epoch) tensor.rate_factor = each.factor;
    }
    for (const ParameterFactor& each : GetParam().options.decay_factors) {
      if (matches(each.pattern, layout_.trained()[slice])) tensor.decay_factor = each.factor;
    }
  }

  // The padding of a communicator's block stays zero.
  std::vector<float> gradients_of(int step) const {
    std::vector<float> block(static_cast<std::size_t>(layout_.block_elements()));
    for (const ParameterSlice& slice : layout_.slices()) {
      if (slice.frozen) continue;
      const auto values = random_floats(slice.elements(), slice.name + std::to_string(step), GetParam().gradient_size);
      std::ranges::copy(values, block.begin() + slice.offset);
    }
    return block;
  }

  void expect_near(const Tensor& block, const std::vector<reference::Tensor>& expected, const std::string& what) {
    const auto got = tensors_of(device_.download<float>(block));
    for (std::size_t i = 0; i < got.size(); ++i) {
      for (std::size_t k = 0; k < got[i].values.size(); ++k) {
        ASSERT_NEAR(got[i].values[k], expected[i].values[k], 2e-6 * (1 + std::abs(expected[i].values[k])))
            << what << " of " << layout_.slice(static_cast<int>(i)).name << ", element " << k;
      }
    }
  }

  Device device_;
  ParameterLayout layout_;
  ParameterArena arena_;
  std::unique_ptr<Communicator> communicator_ = make_solo_communicator();
  Ownership ownership_{Owners::all, layout_, make_buckets(layout_, 1), {}};
};

TEST_P(OptimizerFormula, IsThatOfPyTorchOverMultipleSteps) {
  const OptimizerOptions& options = GetParam().options;
  const auto optimizer = make_optimizer(options, {device_.backend(), *communicator_, layout_, ownership_});
  const auto start = device_.download<float>(arena_.weights());
  reference::Optimizer expected({.kind = options.kind,
                                 .momentum = options.momentum,
                                 .weight_decay = options.weight_decay,
                                 .nesterov = options.nesterov,
                                 .clip_norm = options.clip_norm,
                                 .beta1 = options.beta1,
                                 .beta2 = options.beta2,
                                 .epsilon = options.epsilon},
                                tensors_of(start));
  for (int step = 1; step <= kSteps; ++step) {
    const auto gradients = gradients_of(step);
    device_.upload(arena_.gradients(), gradients);
    const int epoch = step / 2;
    for (std::size_t i = 0; i < layout_.trained().size(); ++i) set_factors(expected.weights()[i], i, epoch);
    optimizer->set_step(device_.stream(), kRate / step, step, epoch);
    optimizer->apply(device_.stream(), arena_);
    expected.apply(tensors_of(gradients), kRate / step, step);
    EXPECT_TRUE(testing_support::same_bits(device_.download<float>(arena_.gradients()), gradients));
    expect_near(arena_.weights(), expected.weights(), "weights, step " + std::to_string(step));
  }
  const auto slots = optimizer->slots();
  ASSERT_EQ(slots.size(), expected.state().size());
  for (const OptimizerSlot& slot : slots) expect_near(slot.block, expected.state().at(slot.name), slot.name);
  const auto end = device_.download<float>(arena_.weights());
  for (std::int64_t i = layout_.slice(5).offset; i < layout_.block_elements(); ++i) {
    EXPECT_EQ(end[static_cast<std::size_t>(i)], start[static_cast<std::size_t>(i)]) << "frozen or statistics, " << i;
  }
}

const std::vector<Case> kCases{
    {"sgd", {.momentum = 0}},
    {"sgd_decay", {.momentum = 0, .weight_decay = 0.05}},
    {"sgd_spared", {.weight_decay = 0.05, .exempts_norms_and_biases = true}},
    {"sgd_momentum", {.weight_decay = 0.05}},
    {"sgd_nesterov_clipped", {.weight_decay = 0.05, .nesterov = true, .clip_norm = 3}},
    {"sgd_below_the_limit", {.clip_norm = 60}},
    {"adamw", {.kind = OptimizerKind::adamw}},
    {"adamw_own_numbers", {.kind = OptimizerKind::adamw, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3}},
    {"adamw_decay", {.kind = OptimizerKind::adamw, .weight_decay = 0.1}},
    {"adamw_spared_clipped",
     {.kind = OptimizerKind::adamw, .weight_decay = 0.1, .exempts_norms_and_biases = true, .clip_norm = 3},
     10},
    {"sgd_factors",
     {.weight_decay = 0.05,
      .nesterov = true,
      .lr_factors = {{"*/shift", 0, 8}, {"head", 1, 0.5}, {"head/bias", 2, 0}},
      .decay_factors = {{"*/shift", 0, 0.125}}}},
    {"adamw_factors",
     {.kind = OptimizerKind::adamw,
      .weight_decay = 0.1,
      .lr_factors = {{"head", 0, 10}, {"norm", 1, 0}},
      .decay_factors = {{"*/weight", 0, 0.5}}}},
    {"lars_factors", {.kind = OptimizerKind::lars, .weight_decay = 0.05, .lr_factors = {{"h*d/weight", 1, 0.25}}}},
    {"lars", {.kind = OptimizerKind::lars}},
    {"lars_decay", {.kind = OptimizerKind::lars, .weight_decay = 0.05}},
    {"lars_spared_clipped",
     {.kind = OptimizerKind::lars, .weight_decay = 0.05, .exempts_norms_and_biases = true, .clip_norm = 3}},
    {"lars_no_momentum_zero_gradients", {.kind = OptimizerKind::lars, .momentum = 0, .weight_decay = 0.05}, 0},
};
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerFormula, testing::ValuesIn(kCases),
                         [](const auto& that) { return that.param.name; });

TEST(Optimizer, RefusesInvalidOptions) {
  const std::vector<std::pair<OptimizerOptions, std::string>> mistakes{
      {{.momentum = 1}, "--momentum 1"},
      {{.weight_decay = -1}, "--weight-decay -1"},
      {{.clip_norm = -2}, "--clip-norm -2"},
      {{.momentum = 0, .nesterov = true}, "requires --momentum"},
      {{.kind = OptimizerKind::adamw, .nesterov = true}, "--optimizer is adamw"},
      {{.kind = OptimizerKind::lars, .nesterov = true}, "--optimizer is lars"},
      {{.kind = OptimizerKind::adamw, .beta1 = 1}, "--adam-beta1 1"},
      {{.kind = OptimizerKind::adamw, .epsilon = 0}, "--adam-epsilon 0"},
      {{.beta2 = 0.9}, "belong to adamw"},
      {{.decay_factors = {{"head", 2, 3}}}, "leave the epochs out"},
      {{.kind = OptimizerKind::lars, .decay_factors = {{"head", 0, 3}}}, "leave the option out"},
  };
  for (const auto& [options, reason] : mistakes) {
    EXPECT_THAT(thrown_by([&, o = options] { validate(o); }), reports(ErrorSource::usage, reason));
  }
}

// The weights after some steps with clipping and momentum.
std::vector<float> trained_weights(const ParameterLayout& layout) {
  Device device(make_cpu_backend());
  const auto communicator = make_solo_communicator();
  const Ownership ownership(Owners::all, layout, make_buckets(layout, 1), {});
  const ParameterArena arena(layout, device.backend(), device.backend().allocate(layout.block_bytes()));
  for (const Tensor& block : {arena.weights(), arena.gradients()}) {
    for (const ParameterSlice& slice : layout.slices()) {
      device.upload(slice_of(block, slice), random_floats(slice.elements(), slice.name));
    }
  }
  const auto optimizer =
      make_optimizer({.weight_decay = 0.1, .clip_norm = 0.5}, {device.backend(), *communicator, layout, ownership});
  for (int step = 1; step <= kSteps; ++step) {
    optimizer->set_step(device.stream(), kRate, step, 0);
    optimizer->apply(device.stream(), arena);
  }
  return device.download<float>(arena.weights());
}

TEST(Optimizer, LeavesFrozenParametersOutOfUpdatesAndClipping) {
  ParameterLayout with_frozen;
  ParameterLayout without;
  for (ParameterLayout* layout : {&with_frozen, &without}) layout->add("head/weight", ParameterKind::weight, Shape{16});
  with_frozen.add({.name = "stem/weight", .kind = ParameterKind::weight, .shape = Shape{32}, .frozen = true});
  for (ParameterLayout* layout : {&with_frozen, &without}) layout->add("stem/bias", ParameterKind::bias, Shape{16});
  const std::vector<float> all = trained_weights(with_frozen);
  const std::vector<float> expected = trained_weights(without);
  const auto equal = [&](std::size_t at, std::size_t in_expected) {
    return std::equal(all.begin() + at, all.begin() + at + 16, expected.begin() + in_expected);
  };
  EXPECT_TRUE(equal(0, 0) && equal(48, 16));
  EXPECT_EQ(std::vector(all.begin() + 16, all.begin() + 48), random_floats(32, "stem/weight"));
}

TEST(Optimizer, RefusesFactorsThatMatchNothingAndOtherTexts) {
  EXPECT_EQ(parse_lr_factors("*/shift=64, stem@3=0.5e-2 "),
            (std::vector<ParameterFactor>{{"*/shift", 0, 64}, {"stem", 3, 0.005}}));
  EXPECT_TRUE(parse_decay_factors("").empty());
  for (const char* wrong :
       {"a",     "a=",      "=1",          "a=-1", "a@x=1", "a=1,,b=2", "a=1e99", "a=1 0", "a@=1",  "@1=1",
        "a=1=2", "a@1@2=1", "a@1000000=1", "a=1.", "a=.",   "a=1.2.3",  "a=1e",   "a=e1",  "a=1e-", "a=+1"}) {
    EXPECT_THROW(parse_lr_factors(wrong), Error) << wrong;
  }
  EXPECT_EQ(parse_lr_factors("a@0=.5,b=7e2"), (std::vector<ParameterFactor>{{"a", 0, 0.5}, {"b", 0, 700}}));
  const std::string endless(1'000'000, 'a');
  EXPECT_THROW(parse_decay_factors(endless), Error);
  EXPECT_EQ(parse_lr_factors(endless + "=2").at(0).pattern, endless);
  Device device(make_cpu_backend());
  const auto communicator = make_solo_communicator();
  const ParameterLayout layout = odd_layout();
  const Ownership ownership(Owners::all, layout, make_buckets(layout, 1), {});
  const Error error = thrown_by([&] {
    make_optimizer({.lr_factors = {{"neck", 0, 2}}}, {device.backend(), *communicator, layout, ownership});
  });
  EXPECT_EQ(error.what(), std::string("--lr-factors neck=2: the network has no such parameter or layer; it has "
                                      "head/weight, for example"));
}

}  // namespace
}  // namespace tutti
