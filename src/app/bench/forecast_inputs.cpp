#include "forecast_inputs.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// A value of the file, and where it is: messages name both.
class Entry {
 public:
  Entry(const Json& value, std::string place, const char* separator = ": ")
      : value_(value), place_(std::move(place)), separator_(separator) {}

  Entry operator[](const char* key) const {
    if (!value_.is_object()) throw refused("must be an object");
    const auto found = value_.find(key);
    if (found == value_.end()) throw refused(fmt::format("has no \"{}\"", key));
    return {*found, fmt::format("{}{}\"{}\"", place_, separator_, key), "/"};
  }
  bool is_null() const { return value_.is_null(); }
  bool flag() const {
    if (!value_.is_boolean()) throw refused("must be true or false");
    return value_.get<bool>();
  }
  std::string text() const {
    if (!value_.is_string()) throw refused("must be a text");
    return value_.get<std::string>();
  }
  double number(double least, double most = 1e15) const {
    const double number = value_.is_number() ? value_.get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      throw refused(fmt::format("must be a number from {:g} to {:g}", least, most));
    }
    return number;
  }
  std::int64_t count(std::int64_t least, double most = 1e11) const {
    if (!value_.is_number_integer()) throw refused("must be a whole number");
    return static_cast<std::int64_t>(number(static_cast<double>(least), most));
  }
  // Of one value at least.
  template <class Read>
  auto list(Read read) const {
    if (!value_.is_array() || value_.empty()) throw refused("must be a list of one value at least");
    std::vector<decltype(read(*this))> values;
    for (std::size_t i = 0; i < value_.size(); ++i)
      values.push_back(read(Entry(value_[i], fmt::format("{}/{}", place_, i), "/")));
    return values;
  }
  Error refused(const std::string& why) const { return {ErrorSource::input, fmt::format("{} {}", place_, why)}; }

 private:
  const Json& value_;
  std::string place_;
  const char* separator_;
};

Json as_json(const std::optional<Link>& link) {
  if (!link) return nullptr;
  return {{"latency", link->latency}, {"bytes_per_second", link->bytes_per_second}};
}

std::optional<Link> read_link(const Entry& entry) {
  constexpr double kLeastSpeed = 1;
  if (entry.is_null()) return std::nullopt;
  return Link{.latency = entry["latency"].number(0), .bytes_per_second = entry["bytes_per_second"].number(kLeastSpeed)};
}

Json as_json(const ComputeProfile& profile) {
  Json stretches = Json::array();
  for (const StepTimes::Stretch& stretch : profile.times.compute) {
    stretches.push_back({stretch.seconds, stretch.final_elements});
  }
  return {{"images", profile.images},
          {"input", profile.times.input},
          {"update", profile.times.update},
          {"stretches", std::move(stretches)}};
}

StepTimes::Stretch read_stretch(const Entry& entry) {
  const auto pair = entry.list([](const Entry& value) { return value; });
  if (pair.size() != 2) throw entry.refused("must be a list of seconds and elements");
  return {.seconds = pair[0].number(0), .final_elements = pair[1].count(0)};
}

ComputeProfile read_profile(const Entry& entry) {
  ComputeProfile profile{.images = entry["images"].count(1), .times = {}};
  profile.times.input = entry["input"].number(0);
  profile.times.update = entry["update"].number(0);
  profile.times.compute = entry["stretches"].list(read_stretch);
  if (!std::ranges::is_sorted(profile.times.compute, {}, &StepTimes::Stretch::final_elements)) {
    throw entry["stretches"].refused("must have ascending elements");
  }
  if (!(profile.times.compute_seconds() > 0)) throw entry["stretches"].refused("must take longer than no time");
  return profile;
}

bool alike(const ComputeProfile& one, const ComputeProfile& other) {
  return std::ranges::equal(one.times.compute, other.times.compute, {}, &StepTimes::Stretch::final_elements,
                            &StepTimes::Stretch::final_elements);
}

void refuse_misfit(const ForecastInputs& inputs, const Entry& root) {
  const Entry compute = root["compute"];
  if (std::ranges::adjacent_find(inputs.bucket_ends, std::ranges::greater_equal{}) != inputs.bucket_ends.end()) {
    throw root["bucket_ends"].refused("must ascend");
  }
  if (std::ranges::adjacent_find(inputs.compute, std::ranges::greater_equal{}, &ComputeProfile::images) !=
      inputs.compute.end()) {
    throw compute.refused("must have ascending images");
  }
  for (const ComputeProfile& profile : inputs.compute) {
    if (!alike(profile, inputs.compute.front())) {
      throw compute.refused(fmt::format("has stretches of other elements for {} images than for {}", profile.images,
                                        inputs.compute.front().images));
    }
  }
  if (inputs.compute.front().times.compute.back().final_elements < inputs.bucket_ends.back()) {
    throw compute.refused(fmt::format("ends with {} elements, but the buckets with {}",
                                      inputs.compute.front().times.compute.back().final_elements,
                                      inputs.bucket_ends.back()));
  }
}

ForecastInputs read_inputs(const Entry& root) {
  constexpr double kLeastCrowding = 1e-3;
  ForecastInputs inputs;
  inputs.source = root["source"].text();
  inputs.model = root["model"].text();
  inputs.ranks_per_node = static_cast<int>(root["ranks_per_node"].count(1, 1e6));
  inputs.overlaps = root["overlaps"].flag();
  inputs.helper_thread = root["helper_thread"].flag();
  inputs.bucket_ends = root["bucket_ends"].list([](const Entry& end) { return end.count(1); });
  inputs.compute = root["compute"].list(read_profile);
  inputs.crowding = root["crowding"].number(kLeastCrowding);
  inputs.jitter = root["jitter"].list([](const Entry& ratio) { return ratio.number(0); });
  inputs.within = read_link(root["within"]);
  inputs.between = read_link(root["between"]);
  if (const Entry misfit = root["misfit"]; !misfit.is_null()) inputs.misfit = misfit.number(0);
  refuse_misfit(inputs, root);
  return inputs;
}

}  // namespace

std::string forecast_inputs_text(const ForecastInputs& inputs) {
  Json compute = Json::array();
  for (const ComputeProfile& profile : inputs.compute) compute.push_back(as_json(profile));
  const Json json{{"source", inputs.source},
                  {"model", inputs.model},
                  {"ranks_per_node", inputs.ranks_per_node},
                  {"overlaps", inputs.overlaps},
                  {"helper_thread", inputs.helper_thread},
                  {"bucket_ends", inputs.bucket_ends},
                  {"compute", std::move(compute)},
                  {"crowding", inputs.crowding},
                  {"jitter", inputs.jitter},
                  {"within", as_json(inputs.within)},
                  {"between", as_json(inputs.between)},
                  {"misfit", inputs.misfit ? Json(*inputs.misfit) : Json(nullptr)}};
  return json.dump(2) + "\n";
}

ForecastInputs parse_forecast_inputs(const std::string& text, const std::string& origin) {
  const Json json = Json::parse(text, nullptr, false);
  const Entry root(json, origin);
  if (json.is_discarded()) throw root.refused("is no JSON");
  const bool of_bench = json.is_object() && json.contains("forecast");
  return read_inputs(of_bench ? root["forecast"]["inputs"] : root);
}

ForecastInputs read_forecast_inputs(const std::string& path) {
  const auto bytes = read_whole(path);
  return parse_forecast_inputs({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace tutti
