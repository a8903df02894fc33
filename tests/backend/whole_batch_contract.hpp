#pragma once
// Tests of every backend's batch norm over a whole batch that is passed in parts. The test of each backend instantiates
// WholeBatchContract over whole_batch_cases().

#include "backend/layout_contract.hpp"

namespace tutti::testing_support {

inline std::vector<NetworkCase> whole_batch_cases() {
  std::vector<NetworkCase> cases = own_layer_layout_cases();
  std::erase_if(cases, [](const NetworkCase& network) {
    return network.batch < 2 || !std::holds_alternative<BatchNormSpec>(network.layers[0]);
  });
  return cases;
}

// Parts that are passed one after the other: in a first run it collects their values, in a second it gives the totals.
class TwoRuns : public WholeBatchSum {
 public:
  explicit TwoRuns(Device& device) : device_(device) {}

  void sum(Stream&, const Tensor& values) override {
    if (gives_) return device_.upload(values, totals_);
    const auto mine = device_.download<double>(values);
    totals_.resize(mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) totals_[i] += mine[i];
  }
  // Calls `run` twice and returns its second result.
  template <class Run>
  auto of(const Run& run) {
    totals_.clear();
    gives_ = false;
    run();
    gives_ = true;
    return run();
  }

 private:
  Device& device_;
  std::vector<double> totals_;
  bool gives_ = false;
};

class WholeBatchContract : public LayoutContract {
 protected:
  // The samples `first` .. `first + samples - 1` of values for the whole batch.
  template <class Value>
  static std::vector<Value> part_of(const std::vector<Value>& values, std::int64_t first, std::int64_t samples) {
    const auto begin = values.begin() + first * network().sample.elements();
    return {begin, begin + samples * network().sample.elements()};
  }
};

TEST_P(WholeBatchContract, PartsThatMeetHaveTheResultsOfTheWholeBatchInEveryLayout) {
  for (const LayoutUnderTest& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const ActivationSpec whole = layout.of(shape());
    const ActivationSpec residual_spec = takes_residual(spec()) ? whole : ActivationSpec{};
    const reference::Array input(shape(), stored(whole, input_));
    const reference::Array residual(shape(), stored(whole, residual_));
    const auto output =
        reference::layer_forward(spec(), {input, &residual, LayerMode::training, kPlace, kPurpose}, parameters_of(0));
    const auto gradient_values = stored(whole, random_floats(shape().elements(), "gradient"));

    TwoRuns meeting(device_);
    const std::int64_t sizes[] = {1, network().batch - 1};
    std::vector<SingleLayer> parts;
    for (const std::int64_t samples : sizes) {
      const ActivationSpec part = layout.of(network().sample.batch_of(samples));
      parts.emplace_back(
          device_, spec(),
          SingleLayerOptions{
              .input = part, .residual = residual_spec.format ? part : ActivationSpec{}, .whole_batch = &meeting},
          weights_);
    }
    const std::vector<float> outputs = meeting.of([&] {
      std::vector<float> all;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::int64_t first = i == 0 ? 0 : 1;
        const auto values = parts[i].forward(part_of(input_, first, sizes[i]), part_of(residual_, first, sizes[i]));
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    });
    EXPECT_TRUE(close(outputs, output.values, tolerance()));

    const reference::Array seen(shape(), outputs);
    const reference::Array gradient(shape(), gradient_values);
    const auto expected =
        reference::layer_backward(spec(), {input, seen, gradient, kPlace, kPurpose, kShare}, parameters_of(0));
    const std::vector<SingleGradients> got = meeting.of([&] {
      std::vector<SingleGradients> all;
      for (std::size_t i = 0; i < 2; ++i) {
        all.push_back(parts[i].backward({part_of(gradient_values, i == 0 ? 0 : 1, sizes[i])}));
      }
      return all;
    });
    std::vector<float> input_gradient = got[0].input;
    input_gradient.insert(input_gradient.end(), got[1].input.begin(), got[1].input.end());
    EXPECT_TRUE(close(input_gradient, expected.input.values, tolerance()));
    for (std::size_t p = 0; p < 4; ++p) {
      std::vector<float> values = got[0].parameters[p];
      if (p < 2) {
        for (std::size_t c = 0; c < values.size(); ++c) values[c] += got[1].parameters[p][c];
      } else {
        EXPECT_TRUE(same_bits(got[1].parameters[p], values)) << p;
      }
      EXPECT_TRUE(close(values, expected.parameters[p].values, tolerance())) << "parameter " << p;
    }
  }
}

}  // namespace tutti::testing_support
