#include "metrics_lines.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// Writing what lies deeper takes a stack as deep.
constexpr int kDeepest = 16;

bool is_record(const Json& json) {
  if (!json.is_object() || !json.contains("event") || !json["event"].is_string()) return false;
  if (json["event"] == "run") return true;
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;  // beyond it, no double tells one step from the next
  if (!json.contains("step") || !json["step"].is_number_integer()) return false;
  const auto step = json["step"].get<std::int64_t>();
  return step >= 0 && step <= kMostSteps;
}

// One JSON value without what is nested deeper; discarded where it is none.
Json parse_shallow(const std::string& text) {
  return Json::parse(
      text, [](int depth, Json::parse_event_t, const Json&) { return depth <= kDeepest; }, false);
}

}  // namespace

MetricsLines read_metrics_lines(const std::string& path) {
  const auto bytes = read_whole(path);
  std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  MetricsLines lines;
  for (std::string line; std::getline(text, line);) {
    if (line.empty()) continue;
    Json record = parse_shallow(line);
    if (is_record(record)) {
      lines.records.push_back(std::move(record));
    } else {
      ++lines.damaged;
    }
  }
  if (!lines.records.empty()) return lines;
  throw Error(ErrorSource::input, fmt::format("'{}' holds no records: give a run's folder, its metrics.jsonl or one "
                                              "of its checkpoints (.h5)",
                                              path));
}

}  // namespace tutti
