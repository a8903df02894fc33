#include "chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

constexpr double kWidth = 440;
constexpr double kHeight = 236;
constexpr double kLeft = 52;
constexpr double kRight = 12;
constexpr double kTop = 10;
constexpr double kFoot = 38;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kFoot;
constexpr int kMostXTicks = 7;
constexpr int kMostYTicks = 5;
constexpr std::size_t kMostSeenMarks = 40;  // from there on they would hide the line
constexpr std::size_t kMostMarks = 400;     // likewise what tells of them to whoever points there
constexpr std::size_t kMostLabelledColumns = 12;
constexpr double kWidestColumn = 96;

double x_of(const Axis& axis, double value) { return kLeft + kPlotWidth * axis.place(value); }
double y_of(const Axis& axis, double value) { return kTop + kPlotHeight * (1 - axis.place(value)); }

std::string number(double value) { return fmt::format("{:.1f}", value); }

Html line_between(const char* look, const ChartPoint& from, const ChartPoint& to) {
  return element(
      "line",
      {{"class", look}, {"x1", number(from.x)}, {"y1", number(from.y)}, {"x2", number(to.x)}, {"y2", number(to.y)}},
      Html());
}

Html label(const ChartPoint& at, const char* look, std::string_view words) {
  return element("text", {{"class", look}, {"x", number(at.x)}, {"y", number(at.y)}}, words);
}

Html y_axis(const Axis& axis, const std::function<std::string(double)>& text_of) {
  Html svg;
  for (const double tick : axis.ticks) {
    const double y = y_of(axis, tick);
    svg += line_between("grid", {kLeft, y}, {kWidth - kRight, y});
    svg += label({kLeft - 6, y + 3.5}, "end", text_of(tick));
  }
  return svg;
}

Html x_axis(const Axis& axis, const std::string& name) {
  Html svg = line_between("axis", {kLeft, kTop + kPlotHeight}, {kWidth - kRight, kTop + kPlotHeight});
  for (const double tick : axis.ticks) {
    const double x = x_of(axis, tick);
    if (x > kWidth - kRight + 1) continue;
    svg += line_between("axis", {x, kTop + kPlotHeight}, {x, kTop + kPlotHeight + 4});
    svg += label({x, kTop + kPlotHeight + 16}, "middle", tick_text(tick));
  }
  return svg + label({kLeft + kPlotWidth / 2, kHeight - 5}, "middle", name);
}

Html canvas(const std::string& spoken, const Html& content) {
  return element(
      "svg", {{"viewBox", fmt::format("0 0 {:.0f} {:.0f}", kWidth, kHeight)}, {"role", "img"}, {"aria-label", spoken}},
      content);
}

Html legend_entry(const char* look, const std::string& name, const std::string& value) {
  Html entry = element("i", {{"class", fmt::format("key {}", look)}}, Html()) + text(name);
  if (!value.empty()) entry += text(" ") + element("b", value);
  return element("span", entry);
}

Html figure(const std::string& title, const std::string& unit, const Html& content) {
  return element("figure", element("figcaption", element("b", title) + text(" ") + element("small", unit)) + content);
}

Html path_of(const LineChart& chart, const Axis& x, const ChartLine& line) {
  std::string path;
  for (const ChartPoint& point : line.points) {
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", number(x_of(x, point.x)), number(y_of(chart.y, point.y)));
  }
  return element("path", {{"class", fmt::format("line {}", line.look)}, {"d", path}}, Html());
}

Html marks_of(const LineChart& chart, const Axis& x, const ChartLine& line) {
  Html marks;
  if (!line.has_marks || line.points.size() > kMostMarks) return marks;
  const char* const look = line.points.size() <= kMostSeenMarks ? "mark" : "mark unseen";
  for (const ChartPoint& point : line.points) {
    const std::string told =
        fmt::format("{} {}: {} {}", chart.x_name, tick_text(point.x), line.name, chart.value_text(point.y));
    marks += element("circle",
                     {{"class", fmt::format("{} {}", look, line.look)},
                      {"cx", number(x_of(x, point.x))},
                      {"cy", number(y_of(chart.y, point.y))},
                      {"r", "3"}},
                     element("title", told));
  }
  return marks;
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

Html column_of(const ColumnChart& chart, const Axis& y, std::size_t place, double width) {
  const ChartColumn& column = chart.columns[place];
  const double whole = sum_of(column.pieces);
  const double gap = width > 4 ? std::max(std::min(0.18 * width, 8.0), width - kWidestColumn) : 0;
  double below = 0;
  Html svg;
  for (std::size_t i = 0; i < column.pieces.size(); ++i) {
    const double top = y_of(y, below + column.pieces[i]);
    const double height = y_of(y, below) - top;
    below += column.pieces[i];
    if (height < 0.05) continue;
    const std::string told = fmt::format("{} {}: {} {:.3g} {}, {:.0f} %", chart.x_name, column.name, chart.pieces[i],
                                         column.pieces[i], chart.unit, 100 * column.pieces[i] / whole);
    svg += element("rect",
                   {{"class", chart.looks[i]},
                    {"x", fmt::format("{:.2f}", kLeft + width * static_cast<double>(place) + gap / 2)},
                    {"y", fmt::format("{:.2f}", top)},
                    {"width", fmt::format("{:.2f}", width - gap)},
                    {"height", fmt::format("{:.2f}", height)}},
                   element("title", told));
  }
  return svg;
}

Html column_names(const ColumnChart& chart, double width) {
  const std::size_t every = (chart.columns.size() + kMostLabelledColumns - 1) / kMostLabelledColumns;
  Html svg;
  for (std::size_t i = 0; i < chart.columns.size(); i += every) {
    const double x = kLeft + width * (static_cast<double>(i) + 0.5);
    svg += label({x, kTop + kPlotHeight + 16}, "middle", chart.columns[i].name);
  }
  return svg + label({kLeft + kPlotWidth / 2, kHeight - 5}, "middle", chart.x_name);
}

}  // namespace

Html draw(const LineChart& chart) {
  const bool has_points = std::ranges::any_of(chart.lines, [](const ChartLine& line) { return !line.points.empty(); });
  if (!has_points) return figure(chart.title, chart.unit, element("p", {{"class", "none"}}, "nothing recorded"));
  Axis x = linear_axis(chart.x, kMostXTicks, true);
  x.low = chart.x.low;
  x.high = chart.x.high;
  Html svg = y_axis(chart.y, chart.y_text) + x_axis(x, chart.x_name);
  for (const double place : chart.verticals) {
    svg += line_between("resumed", {x_of(x, place), kTop}, {x_of(x, place), kTop + kPlotHeight});
  }
  Html legend;
  std::string spoken = chart.title;
  for (const ChartLine& line : chart.lines) {
    if (line.points.empty()) continue;
    svg += path_of(chart, x, line) + marks_of(chart, x, line);
    const std::string last = chart.value_text(line.points.back().y);
    legend += legend_entry(line.look, line.name, line.has_marks ? last : "");
    spoken += fmt::format("; {} ends at {}", line.name, last);
  }
  if (!chart.verticals.empty()) legend += legend_entry("resumed", "the run went on", "");
  return figure(chart.title, chart.unit, element("p", {{"class", "legend"}}, legend) + canvas(spoken, svg));
}

Html draw(const ColumnChart& chart) {
  if (chart.columns.empty())
    return figure(chart.title, chart.unit, element("p", {{"class", "none"}}, "nothing recorded"));
  double most = 0;
  for (const ChartColumn& column : chart.columns) most = std::max(most, sum_of(column.pieces));
  const Axis y = linear_axis({0, most > 0 ? most : 1}, kMostYTicks);
  const double width = kPlotWidth / static_cast<double>(chart.columns.size());
  Html svg = y_axis(y, tick_text) + column_names(chart, width);
  for (std::size_t i = 0; i < chart.columns.size(); ++i) svg += column_of(chart, y, i, width);
  svg += line_between("axis", {kLeft, kTop + kPlotHeight}, {kWidth - kRight, kTop + kPlotHeight});
  Html legend;
  for (std::size_t i = 0; i < chart.pieces.size(); ++i) legend += legend_entry(chart.looks[i], chart.pieces[i], "");
  return figure(chart.title, chart.unit, element("p", {{"class", "legend"}}, legend) + canvas(chart.title, svg));
}

}  // namespace tutti
