#include "tutti/data/image_recipe.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tutti {
namespace {

Shape image_shape(const RecipeRequest& request, const DatasetInfo& data) {
  if (request.image_size > 0) return Shape{data.image[0], request.image_size, request.image_size};
  if (data.sizes_differ()) {
    throw Error(ErrorSource::usage,
                fmt::format("the images of {} differ in size: give --image-size N to resize them to N x N", data.name));
  }
  if (request.augment != Augment::none && data.image[1] != data.image[2]) {
    throw Error(ErrorSource::usage,
                fmt::format("--augment {} produces square images, and those of {} are {} x {}: give --image-size N",
                            name_of(request.augment), data.name, data.image[1], data.image[2]));
  }
  return data.image;
}

// One comma-separated number per channel, or one number for all channels. Empty if the text is neither.
std::vector<double> parse_channels(std::string_view text, std::size_t channels) {
  std::vector<double> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    double value = 0;
    const auto [rest, status] = std::from_chars(at, end, value);
    if (status != std::errc{} || !std::isfinite(value) || (rest != end && *rest != ',')) return {};
    values.push_back(value);
    if (rest == end) break;
    at = rest + 1;
  }
  if (values.size() == 1) values.resize(channels, values.front());
  return values.size() == channels ? values : std::vector<double>{};
}

ChannelStatistics parse_statistics(const std::string& text, std::size_t channels) {
  const std::size_t slash = text.find('/');
  ChannelStatistics statistics;
  if (slash != std::string::npos) {
    statistics.mean = parse_channels(std::string_view(text).substr(0, slash), channels);
    statistics.deviation = parse_channels(std::string_view(text).substr(slash + 1), channels);
  }
  if (statistics.mean.empty() || statistics.deviation.empty()) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--normalize {}: give none, auto or M/S, mean and standard deviation of pixel / 255, each one "
                    "number{}, for example 0.5/0.25",
                    text, channels > 1 ? fmt::format(" or {} separated by commas", channels) : ""));
  }
  return statistics;
}

ChannelStatistics own_statistics(const DatasetInfo& data) {
  if (!data.statistics.mean.empty()) return data.statistics;
  throw Error(
      ErrorSource::usage,
      fmt::format("--normalize auto needs the mean and standard deviation of {}: run {} data convert first, or give "
                  "them as M/S, for photographs 0.485,0.456,0.406/0.229,0.224,0.225",
                  data.name, program_call()));
}

ChannelStatistics choose_statistics(const std::string& normalize, const DatasetInfo& data) {
  if (normalize == "none") return {};
  ChannelStatistics statistics =
      normalize == "auto" ? own_statistics(data) : parse_statistics(normalize, static_cast<std::size_t>(data.image[0]));
  if (std::ranges::any_of(statistics.deviation, [](double deviation) { return deviation <= 0; })) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--normalize {}: a channel of {} has a standard deviation of 0 or less; give M/S with S above 0, "
                    "or none",
                    normalize, data.name));
  }
  return statistics;
}

}  // namespace

ImageRecipe make_recipe(const RecipeRequest& request, const DatasetInfo& data) {
  return {.augment = request.augment,
          .image = image_shape(request, data),
          .statistics = choose_statistics(request.normalize, data),
          .seed = request.seed};
}

ImageRecipe make_recipe(const RecipeRequest& request, const Dataset& data) {
  DatasetInfo info = data.info();
  const auto resident = data.resident_images();
  if (request.normalize == "auto" && info.statistics.mean.empty() && resident) {
    info.statistics = statistics_of(resident->pixels, info.image);
  }
  return make_recipe(request, info);
}

std::string normalize_text(const ChannelStatistics& statistics) {
  if (statistics.mean.empty()) return "none";
  return fmt::format("{}/{}", fmt::join(statistics.mean, ","), fmt::join(statistics.deviation, ","));
}

}  // namespace tutti
