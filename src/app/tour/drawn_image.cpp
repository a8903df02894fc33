#include "drawn_image.hpp"

#include "tutti/base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <string_view>

namespace tutti {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kColumns = 16;
constexpr std::string_view kLetters = " .:-=+*#%@";  // from dark to bright

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Pixels of one letter, one at least.
Span pixels_of(std::int64_t letter, std::int64_t letters, std::int64_t pixels) {
  const std::int64_t begin = std::min(letter * pixels / letters, pixels - 1);
  return {begin, std::max(begin + 1, (letter + 1) * pixels / letters)};
}

// The mean over all channels.
double brightness(const ImageView& image, Span rows, Span columns) {
  const std::int64_t height = image.shape[1];
  const std::int64_t width = image.shape[2];
  double sum = 0;
  for (std::int64_t channel = 0; channel < image.shape[0]; ++channel) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::uint8_t* const pixels = image.pixels + (channel * height + row) * width;
      for (std::int64_t column = columns.begin; column < columns.end; ++column) sum += pixels[column];
    }
  }
  return sum / static_cast<double>(image.shape[0] * (rows.end - rows.begin) * (columns.end - columns.begin));
}

std::string class_name(const DatasetInfo& info, std::int32_t label) {
  const auto at = static_cast<std::size_t>(label);
  return at < info.class_names.size() ? printable(info.class_names[at]) : fmt::format("{}", label);
}

}  // namespace

std::string draw_image(const Dataset& data, std::int64_t sample) {
  SampleBatch batch;
  data.read(std::span(&sample, 1), batch);
  const ImageView& image = batch.images.front();
  std::vector<double> values;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      values.push_back(
          brightness(image, pixels_of(row, kRows, image.shape[1]), pixels_of(column, kColumns, image.shape[2])));
    }
  }
  const auto [darkest, brightest] = std::ranges::minmax(values);
  const double range = std::max(1.0, brightest - darkest);
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto level = static_cast<std::size_t>((values[i] - darkest) / range * kLetters.size());
    text += kLetters[std::min(level, kLetters.size() - 1)];
    if ((i + 1) % kColumns == 0) text += '\n';
  }
  return text + class_name(data.info(), batch.labels.front());
}

std::vector<std::string> lines_of_drawing(const std::string& drawing) {
  std::vector<std::string> lines;
  std::istringstream stream(drawing);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace tutti
