#include "layer_report.hpp"

#include "tutti/base/spread.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

template <class Figure>
double median_over(const std::vector<LayersRound>& rounds, Figure figure) {
  std::vector<double> values;
  for (const LayersRound& round : rounds) values.push_back(figure(round));
  return spread_of(std::move(values)).median;
}

ProfiledStep median_step(const std::vector<LayersRound>& rounds) {
  ProfiledStep median;
  for (const auto part : {&ProfiledStep::data, &ProfiledStep::loss, &ProfiledStep::exchange, &ProfiledStep::update,
                          &ProfiledStep::step}) {
    median.*part = median_over(rounds, [&](const LayersRound& round) { return round.step.*part; });
  }
  median.layers.resize(rounds.front().step.layers.size());
  for (std::size_t i = 0; i < median.layers.size(); ++i) {
    for (const auto pass : {&LayerSeconds::forward, &LayerSeconds::backward}) {
      median.layers[i].*pass =
          median_over(rounds, [&](const LayersRound& round) { return round.step.layers.at(i).*pass; });
    }
  }
  return median;
}

std::optional<PrimitiveTimes> median_primitives(const std::vector<LayersRound>& rounds, std::size_t layer) {
  if (!rounds.front().library.at(layer)) return std::nullopt;
  PrimitiveTimes median;
  for (const auto pass :
       {&PrimitiveTimes::forward, &PrimitiveTimes::backward_data, &PrimitiveTimes::backward_weights}) {
    median.*pass = median_over(rounds, [&](const LayersRound& round) { return (*round.library.at(layer)).*pass; });
  }
  return median;
}

ProcessorRates median_rates(const std::vector<LayersRound>& rounds) {
  ProcessorRates median;
  for (const auto rate :
       {&ProcessorRates::f32_operations, &ProcessorRates::bf16_operations, &ProcessorRates::copied_bytes}) {
    median.*rate = median_over(rounds, [&](const LayersRound& round) { return round.rates.*rate; });
  }
  return median;
}

LayerWork work_of(const MeasuredNetwork& measured, const NetworkLayer& layer) {
  const bool has_way_back = layer.from != kImage;
  const double element = measured.precision == Precision::bf16 ? 2 : 4;
  const auto samples = static_cast<double>(measured.samples);
  const double input = samples * static_cast<double>(layer.input.elements()) * (has_way_back ? element : 4);
  const double output = samples * static_cast<double>(layer.output.elements()) * element;
  const double residual = takes_residual(layer.spec) ? output : 0;
  double weights = 0;
  for (const int slice : layer.parameters) {
    weights += static_cast<double>(measured.network.layout().slice(slice).elements()) * element;
  }
  const double pass = 2 * samples * static_cast<double>(multiply_adds(layer.spec, layer.input));
  return {
      .forward_operations = pass,
      .backward_operations = has_way_back ? 2 * pass : pass,
      .bytes = input + residual + weights + output + output + input + weights + (has_way_back ? input + weights : 0)};
}

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

std::string part_line(const char* name, double seconds, double step) {
  return fmt::format("{:<28} {:>17.3f} {:>6.1f}\n", name, seconds * 1e3, 100 * seconds / step);
}

std::string layer_line(const LayerFigures& layer, double step) {
  const LayerWork& work = layer.work;
  const double operations = work.forward_operations + work.backward_operations;
  std::string line = fmt::format("{:<28} {:>8.3f} {:>8.3f} {:>6.1f}", layer.name, layer.seconds.forward * 1e3,
                                 layer.seconds.backward * 1e3, 100 * layer.total() / step);
  line += operations == 0 ? fmt::format(" {:>21}", "")
                          : fmt::format(" {:>7.3f} {:>6.0f} {:>6.0f}", operations * 1e-9,
                                        per_second(work.forward_operations, layer.seconds.forward) * 1e-9,
                                        per_second(work.backward_operations, layer.seconds.backward) * 1e-9);
  line += layer.operations_limit >= layer.memory_limit
              ? fmt::format(" {:>13}", "")
              : fmt::format(" {:>7.4f} {:>5.1f}", work.bytes * 1e-9, per_second(work.bytes, layer.total()) * 1e-9);
  line += fmt::format(" {:>8.3f}", layer.limit() * 1e3);
  if (!layer.library) return line + "\n";
  return line + fmt::format(" {:>8.3f} {:>8.3f} {:>8.3f} {:>5.2f}\n", layer.library->forward * 1e3,
                            layer.library->backward_data * 1e3, layer.library->backward_weights * 1e3,
                            layer.library->total() / layer.total());
}

Json layer_json(const LayerFigures& layer) {
  Json library;
  if (layer.library) {
    library = {{"forward_seconds", layer.library->forward},
               {"backward_data_seconds", layer.library->backward_data},
               {"backward_weights_seconds", layer.library->backward_weights}};
  }
  return {{"name", layer.name},
          {"type", layer.type},
          {"input", layer.input.text()},
          {"forward_seconds", layer.seconds.forward},
          {"backward_seconds", layer.seconds.backward},
          {"forward_operations", layer.work.forward_operations},
          {"backward_operations", layer.work.backward_operations},
          {"bytes", layer.work.bytes},
          {"limit_seconds", layer.limit()},
          {"library", library}};
}

}  // namespace

double LayersReport::library_seconds() const {
  double seconds = 0;
  for (const LayerFigures& layer : layers) seconds += layer.library ? layer.library->total() : 0;
  return seconds;
}

double LayersReport::limit() const {
  double seconds = 0;
  for (const LayerFigures& layer : layers) seconds += layer.limit();
  return seconds;
}

LayersReport report_of(const MeasuredNetwork& measured, const std::vector<LayersRound>& rounds) {
  LayersReport report{.layers = {},
                      .step = median_step(rounds),
                      .left = median_over(rounds, [](const LayersRound& round) { return round.step.left(); }),
                      .rates = median_rates(rounds)};
  const bool multiplies_bf16 = measured.precision == Precision::bf16 && report.rates.bf16_operations > 0;
  const double operations = multiplies_bf16 ? report.rates.bf16_operations : report.rates.f32_operations;
  for (std::size_t i = 0; i < report.step.layers.size(); ++i) {
    const NetworkLayer& layer = measured.network.layers().at(i);
    const LayerWork work = work_of(measured, layer);
    report.layers.push_back({.name = layer.name,
                             .type = std::string(type_name(layer.spec)),
                             .input = layer.input,
                             .seconds = report.step.layers[i],
                             .work = work,
                             .library = median_primitives(rounds, i),
                             .operations_limit = (work.forward_operations + work.backward_operations) / operations,
                             .memory_limit = work.bytes / report.rates.copied_bytes});
  }
  return report;
}

std::string table_of(const LayersReport& report) {
  const ProfiledStep& step = report.step;
  std::string table = fmt::format(
      "{:>52} {:>21} {:>13} {:>8} {:>32}\n{:<28} {:>8} {:>8} {:>6} {:>7} {:>6} {:>6} {:>7} {:>5} {:>8} {:>8} {:>8} "
      "{:>8} {:>5}\n",
      "", "GFLOP/s", "", "limit", "the library's primitives, ms", "layer", "fwd ms", "bwd ms", "%", "GFLOP", "fwd",
      "bwd", "GB", "GB/s", "ms", "fwd", "data", "weights", "ratio");
  for (const LayerFigures& layer : report.layers) table += layer_line(layer, report.parts());
  for (const auto& [name, seconds] :
       {std::pair("loss", step.loss), std::pair("data", step.data), std::pair("exchange", step.exchange),
        std::pair("update", step.update), std::pair("left", report.left), std::pair("all parts", report.parts()),
        std::pair("a whole step", step.step)}) {
    table += part_line(name, seconds, report.parts());
  }
  table +=
      fmt::format("the library's primitives: {:.3f} ms, {:.3f} of all parts; the layers' limits: {:.3f} ms, {:.3f}\n",
                  report.library_seconds() * 1e3, report.library_seconds() / report.parts(), report.limit() * 1e3,
                  report.limit() / report.parts());
  return table + fmt::format("the processor: {:.0f} GFLOP/s of f32, {:.0f} of bf16 dot products, {:.1f} GB/s copied\n",
                             report.rates.f32_operations * 1e-9, report.rates.bf16_operations * 1e-9,
                             report.rates.copied_bytes * 1e-9);
}

Json json_of(const LayersReport& report) {
  Json layers = Json::array();
  for (const LayerFigures& layer : report.layers) layers.push_back(layer_json(layer));
  const ProfiledStep& step = report.step;
  return {{"layers", layers},
          {"loss_seconds", step.loss},
          {"data_seconds", step.data},
          {"exchange_seconds", step.exchange},
          {"update_seconds", step.update},
          {"left_seconds", report.left},
          {"parts_seconds", report.parts()},
          {"step_seconds_median", step.step},
          {"library_seconds", report.library_seconds()},
          {"library_ratio", report.library_seconds() / report.parts()},
          {"limit_seconds", report.limit()},
          {"f32_operations_per_second", report.rates.f32_operations},
          {"bf16_operations_per_second", report.rates.bf16_operations},
          {"copied_bytes_per_second", report.rates.copied_bytes}};
}

}  // namespace tutti
