#include "chart.hpp"
#include "figure_text.hpp"
#include "sections.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace tutti {
namespace {

constexpr int kTicks = 5;

using OfEpoch = std::optional<double> EpochRecord::*;
using OfStretch = std::optional<double> StretchRecord::*;

ChartLine line_of(const RunHistory& history, const char* name, const char* look, OfEpoch figure) {
  ChartLine line{.name = name, .look = look};
  for (const auto& [step, record] : history.epochs) {
    if (record.*figure) line.points.push_back({history.epochs_at(step), *(record.*figure)});
  }
  return line;
}

ChartLine thin_line_of(const RunHistory& history, OfStretch figure) {
  ChartLine line{.name = "train, by steps", .look = "train thin", .has_marks = false};
  for (const auto& [step, record] : history.stretches) {
    if (record.*figure) line.points.push_back({history.epochs_at(step), *(record.*figure)});
  }
  return line;
}

std::optional<Extent> extent_of(const std::vector<ChartLine>& lines) {
  std::optional<Extent> extent;
  for (const ChartLine& line : lines) {
    for (const ChartPoint& point : line.points) {
      extent =
          extent ? Extent{std::min(extent->low, point.y), std::max(extent->high, point.y)} : Extent{point.y, point.y};
    }
  }
  return extent;
}

// Where the least values would lie on the floor otherwise.
bool wants_logarithm(const Extent& extent) { return extent.low > 0 && extent.high > 15 * extent.low; }

Axis loss_axis(const Extent& extent) {
  return wants_logarithm(extent) ? logarithmic_axis(extent, kTicks) : linear_axis({0, extent.high}, kTicks);
}

Axis share_axis(const Extent& extent) {
  Axis axis = linear_axis(extent, kTicks);
  axis.high = std::min(axis.high, std::max(1.0, extent.high));
  return axis;
}

Axis rate_axis(const RunHistory& history, const Extent& extent) {
  const bool falls_in_steps = history.options && history.options->schedule == "step";
  return falls_in_steps && wants_logarithm(extent) ? logarithmic_axis(extent, kTicks)
                                                   : linear_axis({std::min(0.0, extent.low), extent.high}, kTicks);
}

std::string tick_percent(double share) { return tick_text(100 * share) + " %"; }
std::string four_digits(double value) { return decimal_text(value); }

LineChart chart_of(const RunHistory& history, const char* title, const char* unit, std::vector<ChartLine> lines) {
  LineChart chart{.title = title, .unit = unit, .x_name = history.epochs.empty() ? "step" : "epoch"};
  chart.lines = std::move(lines);
  for (std::size_t i = 1; i < history.starts.size(); ++i) {
    chart.verticals.push_back(history.epochs_at(history.starts[i].step));
  }
  chart.x = {0, std::max(1e-9, history.epochs_at(history.last_step()) * 1.02)};
  return chart;
}

Html table_of_epochs(const RunHistory& history) {
  std::vector<Row> rows;
  for (const auto& [step, record] : history.epochs) {
    rows.push_back({count_text(record.epoch), count_text(step), decimal_text(record.train_loss),
                    decimal_text(record.train_accuracy), decimal_text(record.test_loss),
                    decimal_text(record.test_accuracy), decimal_text(record.seconds, 1),
                    decimal_text(record.images_per_second, 0), record.lr ? rate_text(*record.lr) : "-", record.digest});
  }
  return table_of(
      {"epoch", "step", "train loss", "train acc", "test loss", "test acc", "seconds", "images/s", "lr", "weights"},
      rows);
}

}  // namespace

Html curves_of(const RunHistory& history) {
  LineChart loss = chart_of(
      history, "Loss", "mean cross-entropy",
      {thin_line_of(history, &StretchRecord::train_loss), line_of(history, "train", "train", &EpochRecord::train_loss),
       line_of(history, "test", "test", &EpochRecord::test_loss)});
  LineChart accuracy = chart_of(history, "Accuracy", "images named rightly",
                                {thin_line_of(history, &StretchRecord::train_accuracy),
                                 line_of(history, "train", "train", &EpochRecord::train_accuracy),
                                 line_of(history, "test", "test", &EpochRecord::test_accuracy)});
  LineChart rate = chart_of(history, "Learning rate", "of the epoch's last step",
                            {line_of(history, "lr", "rate", &EpochRecord::lr)});
  LineChart speed = chart_of(history, "Speed", "training images a second",
                             {line_of(history, "images/s", "speed", &EpochRecord::images_per_second)});
  if (const auto extent = extent_of(loss.lines)) loss.y = loss_axis(*extent);
  if (const auto extent = extent_of(accuracy.lines)) accuracy.y = share_axis(*extent);
  if (const auto extent = extent_of(rate.lines)) rate.y = rate_axis(history, *extent);
  if (const auto extent = extent_of(speed.lines)) speed.y = linear_axis({0, extent->high}, kTicks);
  loss.value_text = four_digits;
  accuracy.y_text = tick_percent;
  accuracy.value_text = percent_text;
  rate.value_text = rate_text;
  speed.y_text = speed.value_text = whole_text;
  Html charts;
  for (const LineChart* chart : {&loss, &accuracy, &rate, &speed}) charts += draw(*chart);
  Html content = element("div", {{"class", "charts"}}, charts);
  if (!history.epochs.empty()) content += folded("Every epoch's figures", table_of_epochs(history));
  return section_of("curves", "How it learned", content);
}

}  // namespace tutti
