#include "bench/layer_report.hpp"

#include "tutti/nn/models.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <thread>

namespace tutti {
namespace {

constexpr std::int64_t kSamples = 8;

class LayersReportTest : public testing::Test {
 protected:
  // Layer k takes k + 1 seconds forward and twice that backward.
  LayersRound round(double loss, double left) const {
    LayersRound round;
    for (std::size_t i = 0; i < network.layers().size(); ++i) {
      const auto seconds = static_cast<double>(i + 1);
      round.step.layers.push_back({.forward = seconds, .backward = 2 * seconds});
      round.step.step += 3 * seconds;
      round.library.push_back(PrimitiveTimes{.forward = 1, .backward_data = 2, .backward_weights = 3});
    }
    round.library.back().reset();
    round.step.loss = loss;
    round.step.step += loss + left;
    round.rates = {.f32_operations = 1e3, .bf16_operations = 4e3, .copied_bytes = 1e9};
    return round;
  }

  Network network{built_in_model("lenet"), Shape{1, 28, 28}, 10};
  MeasuredNetwork measured{network, kSamples, Precision::fp32};
};

TEST_F(LayersReportTest, PartsAddUpToTheStepAndNoOddRoundCounts) {
  const LayersReport report = report_of(measured, {round(5, 1), round(500, 1), round(5, 1), round(5, 70), round(5, 1)});
  double sum = report.step.loss + report.left;
  for (const LayerFigures& layer : report.layers) sum += layer.total();
  EXPECT_DOUBLE_EQ(report.parts(), sum);
  EXPECT_DOUBLE_EQ(report.parts(), round(5, 1).step.step);
  EXPECT_DOUBLE_EQ(report.step.step, report.parts());
}

TEST_F(LayersReportTest, ComparesWithTheLibraryWhereItHasPrimitives) {
  const LayersReport report = report_of(measured, {round(0, 0)});
  EXPECT_DOUBLE_EQ(report.library_seconds(), 6.0 * static_cast<double>(network.layers().size() - 1));
  const nlohmann::ordered_json json = json_of(report);
  ASSERT_EQ(json.at("layers").size(), network.layers().size());
  EXPECT_TRUE(json.at("layers").back().at("library").is_null());
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    EXPECT_EQ(json.at("layers")[i].at("name"), network.layers()[i].name);
    EXPECT_NE(table_of(report).find("\n" + network.layers()[i].name + " "), std::string::npos);
  }
}

TEST_F(LayersReportTest, CountsTheFirstLayersWayBackOnce) {
  const LayersReport report = report_of(measured, {round(0, 0)});
  const LayerWork& first = report.layers.front().work;
  EXPECT_EQ(first.forward_operations,
            2.0 * kSamples * static_cast<double>(multiply_adds(network.layers().front().spec, Shape{1, 28, 28})));
  EXPECT_EQ(first.backward_operations, first.forward_operations);
  const LayerWork& last = report.layers.back().work;
  EXPECT_EQ(last.backward_operations, 2 * last.forward_operations);
}

TEST_F(LayersReportTest, HoldsEachLayerAgainstArithmeticInItsPrecisionOrMemory) {
  const auto limits = [&](Precision precision) {
    return report_of({network, kSamples, precision}, {round(0, 0)}).layers;
  };
  const auto conv = limits(Precision::fp32).front();
  EXPECT_DOUBLE_EQ(conv.limit(), (conv.work.forward_operations + conv.work.backward_operations) / 1e3);
  EXPECT_DOUBLE_EQ(limits(Precision::bf16).front().limit(), conv.limit() / 4);
  const auto pool = limits(Precision::fp32)[1];
  ASSERT_EQ(pool.type, "max-pool2d");
  // Read and written forward, and likewise backward, where a pool of 2x2 leaves a quarter.
  const Shape& input = network.layers()[1].input;
  EXPECT_GT(pool.work.bytes, 2 * 4.0 * kSamples * static_cast<double>(input.elements()));
  EXPECT_DOUBLE_EQ(pool.limit(), pool.work.bytes / 1e9);
}

TEST(LayerClock, TellsTheLayersOfAStepApart) {
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  Whereabouts whereabouts;
  LayerClock clock(whereabouts);
  wait();
  clock.take();
  whereabouts.begin_step(1, Phase::data);
  whereabouts.enter(Phase::forward);
  whereabouts.end_layer();
  wait();
  whereabouts.end_layer();
  wait();
  whereabouts.enter(Phase::backward);
  wait();
  whereabouts.end_layer();
  whereabouts.enter(Phase::exchange);
  wait();
  whereabouts.enter(Phase::backward);
  wait();
  whereabouts.end_layer();
  whereabouts.enter(Phase::update);
  wait();
  const ProfiledStep seen = clock.take();
  ASSERT_EQ(seen.layers.size(), 2U);
  for (const double waited : {seen.layers[1].forward, seen.loss, seen.layers[1].backward, seen.exchange,
                              seen.layers[0].backward, seen.update}) {
    EXPECT_GE(waited, 0.002);
  }
  wait();
  const ProfiledStep nothing = clock.take();
  EXPECT_TRUE(nothing.layers.empty());
  EXPECT_EQ(nothing.update, 0);
}

}  // namespace
}  // namespace tutti
