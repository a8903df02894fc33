#include "tutti/data/image_recipe.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

Shape image_shape(const RecipeRequest& request, const DatasetInfo& data) {
  if (request.image_size > 0) return Shape{data.image[0], request.image_size, request.image_size};
  if (data.sizes_differ()) {
    throw Error(ErrorSource::usage,
                fmt::format("the images of {} differ in size: give --image-size N to resize them to N x N", data.name));
  }
  if (request.augment.crop != Crop::none && data.image[1] != data.image[2]) {
    throw Error(ErrorSource::usage,
                fmt::format("--augment {} produces square images, and those of {} are {} x {}: give --image-size N",
                            name_of(request.augment.crop), data.name, data.image[1], data.image[2]));
  }
  return data.image;
}

// One comma-separated number per channel, or one number for all channels. Empty if the text is neither.
std::vector<double> parse_channels(const std::string& text, std::size_t channels) {
  auto values = parse_numbers<double>(text);
  if (!std::ranges::all_of(values, [](double value) { return std::isfinite(value); })) return {};
  if (values.size() == 1) values.resize(channels, values.front());
  return values.size() == channels ? values : std::vector<double>{};
}

ChannelStatistics parse_statistics(const std::string& text, const DatasetInfo& data) {
  const auto channels = static_cast<std::size_t>(data.image[0]);
  const std::size_t slash = text.find('/');
  ChannelStatistics statistics;
  if (slash != std::string::npos) {
    statistics.mean = parse_channels(text.substr(0, slash), channels);
    statistics.deviation = parse_channels(text.substr(slash + 1), channels);
  }
  if (statistics.mean.empty() || statistics.deviation.empty()) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--normalize {}: give none, auto or M/S, mean and standard deviation of pixel / 255, each one "
                    "number{}, for example 0.5/0.25: the images of {} have {}; is --data right?",
                    text, channels > 1 ? fmt::format(" or {} separated by commas", channels) : "", data.name,
                    channels == 1 ? "1 channel" : fmt::format("{} channels", channels)));
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
  ChannelStatistics statistics = normalize == "auto" ? own_statistics(data) : parse_statistics(normalize, data);
  if (std::ranges::any_of(statistics.deviation, [](double deviation) { return deviation <= 0; })) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--normalize {}: a channel of {} has a standard deviation of 0 or less; give M/S with S above 0, "
                    "or none",
                    normalize, data.name));
  }
  return statistics;
}

// Takes the step `name` with what follows its colon. Returns whether that is valid.
bool take_step(Augment& augment, const std::string& name, const std::string& text) {
  std::vector<double> numbers;
  for (const std::string& number : split(text, '/')) {
    numbers.push_back(parse_number<double>(number).value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  const auto take = [&](double& field, double min, double max) {
    if (numbers.size() != 1 || !(numbers[0] >= min && numbers[0] <= max)) return false;
    field = numbers[0];
    return true;
  };
  if (const auto crop = value_named<Crop>(name)) {
    augment.crop = *crop;
    if (augment.flip == Flip::none) augment.flip = Augment(*crop).flip;
    if (*crop != Crop::shift) return text.empty();
    augment.shift = parse_number<std::int64_t>(text).value_or(0);
    return augment.shift > 0;
  }
  if (name == "erase") return take(augment.erase, 0.001, 1);
  if (name == "mixup") return take(augment.mixup, 0.001, 1000);
  if (name == "cutmix") return take(augment.cutmix, 0.001, 1000);
  if (name == "rotate") return take(augment.rotate, 0.001, 180);
  if (name == "jitter") {
    auto& [brightness, contrast, saturation, hue] = augment.jitter;
    const std::array<double*, 4> fields{&brightness, &contrast, &saturation, &hue};
    if (numbers.empty() || numbers.size() > fields.size()) return false;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!(numbers[i] >= 0 && numbers[i] <= (fields[i] == &hue ? 0.5 : 100))) return false;
      *fields[i] = numbers[i];
    }
    return augment.jitter != ColorJitter{};
  }
  if (name == "randaugment") {
    if (numbers.size() != 2) return false;
    augment.rand_augment = {.operations = static_cast<int>(std::clamp(numbers[0], 0.0, 100.0)),
                            .magnitude = static_cast<int>(std::clamp(numbers[1], 0.0, 100.0))};
    const auto& [operations, magnitude] = augment.rand_augment;
    return operations == numbers[0] && operations > 0 && magnitude == numbers[1] && magnitude <= 30;
  }
  if (name == "flip") augment.flip = Flip::random;
  if (name == "alternate-flip") augment.flip = Flip::alternate;
  augment.vertical_flip = augment.vertical_flip || name == "vertical-flip";
  augment.trivial = augment.trivial || name == "trivial";
  augment.scaled_decode = augment.scaled_decode || name == "scaled-decode";
  constexpr std::array<std::string_view, 5> kPlain{"flip", "alternate-flip", "vertical-flip", "scaled-decode",
                                                   "trivial"};
  return text.empty() && std::ranges::find(kPlain, name) != kPlain.end();
}

}  // namespace

Augment parse_augment(const std::string& text) {
  Augment augment;
  std::set<std::string> steps;
  const auto take = [&](const std::string& word) {
    const std::size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    const std::string text_after = colon == std::string::npos ? "" : word.substr(colon + 1);
    if (colon != std::string::npos && text_after.empty()) return false;
    const std::string kind = value_named<Crop>(name)    ? "crop"
                             : name == "alternate-flip" ? "flip"
                             : name == "randaugment"    ? "trivial"
                                                        : name;
    return steps.insert(kind).second && take_step(augment, name, text_after);
  };
  const std::vector<std::string> words = split(text, ',');
  if (!words.empty() && !text.ends_with(',') && std::ranges::all_of(words, take)) return augment;
  throw Error(ErrorSource::usage,
              fmt::format("--augment {}: give none, or some of these, separated by commas: crop-flip, pad-crop-flip, "
                          "resized-crop or shift:N; flip or alternate-flip; vertical-flip; rotate:DEGREES; "
                          "jitter:BRIGHTNESS/CONTRAST/SATURATION/HUE; scaled-decode; trivial or "
                          "randaugment:N/MAGNITUDE; erase:P; mixup:A; cutmix:A",
                          text));
}

ImageRecipe make_recipe(const RecipeRequest& request, const DatasetInfo& data) {
  const Shape image = image_shape(request, data);
  if (request.augment.shift >= image[1]) {
    throw Error(ErrorSource::usage, fmt::format("--augment shift:{}: images of {} x {} can be shifted by at most {} "
                                                "pixels",
                                                request.augment.shift, image[1], image[2], image[1] - 1));
  }
  if (request.augment.changes_colors() && image[0] != 1 && image[0] != 3) {
    throw Error(ErrorSource::usage,
                fmt::format("--augment {} is for images of 1 or 3 channels, and those of {} have {}",
                            request.augment.trivial                       ? "trivial"
                            : request.augment.rand_augment.operations > 0 ? "randaugment"
                                                                          : "jitter",
                            data.name, image[0]));
  }
  return {.augment = request.augment,
          .image = image,
          .statistics = choose_statistics(request.normalize, data),
          .seed = request.seed,
          .keeps_short_side =
              request.keeps_short_side.value_or(data.has_short_side.value_or(false) && data.image == image)};
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
