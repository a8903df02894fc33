#pragma once
// Charts as SVG that scales with its column: lines over epochs, and stacked columns. Colours are the page's, by class;
// what a point or a piece stands for is told when it is pointed at.

#include "axis.hpp"
#include "html.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

// A line; `look` is a class of the page's.
struct ChartLine {
  std::string name;
  const char* look = "";
  std::vector<ChartPoint> points{};  // x ascending
  bool has_marks = true;
};

struct LineChart {
  std::string title;
  std::string unit;    // of y
  std::string x_name;  // "epoch"
  std::vector<ChartLine> lines{};
  std::vector<double> verticals{};  // where the run went on
  Extent x{};
  Axis y{};
  std::function<std::string(double)> y_text = tick_text;      // beside ticks
  std::function<std::string(double)> value_text = tick_text;  // of points
};
// A figure with its title and legend; without lines, it says that there is nothing to draw.
Html draw(const LineChart& chart);

// A column with its pieces, from the foot upwards.
struct ChartColumn {
  std::string name;
  std::vector<double> pieces{};
};

struct ColumnChart {
  std::string title;
  std::string unit;
  std::string x_name;
  std::vector<std::string> pieces{};  // their names
  std::vector<const char*> looks{};   // their classes
  std::vector<ChartColumn> columns{};
};
Html draw(const ColumnChart& chart);

}  // namespace tutti
