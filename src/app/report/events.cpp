#include "../several.hpp"
#include "figure_text.hpp"
#include "sections.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kMostEvents = 200;

std::string ranks_text(const RunStart& start) {
  const std::string ranks = start.fact("ranks");
  return ranks == "1" ? "1 rank" : ranks.empty() ? "ranks unknown" : ranks + " ranks";
}

std::vector<RunEvent> all_events(const RunHistory& history) {
  std::vector<RunEvent> events;
  for (std::size_t i = 0; i < history.starts.size(); ++i) {
    const RunStart& start = history.starts[i];
    const std::string of = fmt::format("{}, {}", ranks_text(start), start.fact("device"));
    events.push_back({.step = start.step, .what = i == 0 ? "started" : "went on", .details = of});
    if (const std::string faults = start.fact("rehearse"); !faults.empty()) {
      events.push_back({.step = start.step, .what = "a rehearsal", .details = faults});
    }
  }
  for (const auto& [step, checkpoint] : history.checkpoints) {
    if (checkpoint.failure.empty()) continue;
    events.push_back({.step = step, .what = "a checkpoint failed", .details = checkpoint.failure, .is_bad = true});
  }
  events.insert(events.end(), history.events.begin(), history.events.end());
  std::ranges::stable_sort(events, {}, &RunEvent::step);
  if (history.is_under_way) {
    events.push_back({.step = history.last_step(), .what = "under way", .details = "when this was written"});
  } else if (history.end) {
    events.push_back({.step = history.last_step(),
                      .what = "ended with status " + history.end_fact("status"),
                      .details = fmt::format("{} (rank {} on {})", history.end_fact("reason"), history.end_fact("rank"),
                                             history.end_fact("host")),
                      .is_bad = history.end_fact("status") != "75"});
  } else {
    events.push_back({.step = history.last_step(), .what = "ended", .details = ""});
  }
  return events;
}

Html list_of(const std::vector<RunEvent>& events) {
  Html rows;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i == kMostEvents && events.size() > kMostEvents + 1) {
      const std::string left_out = fmt::format("{} more events are left out", events.size() - 1 - kMostEvents);
      rows += element("tr", element("td", "") + element("td", {{"colspan", "2"}}, left_out));
      i = events.size() - 1;
    }
    const RunEvent& event = events[i];
    rows += element("tr", {{"class", event.is_bad ? "bad" : ""}},
                    element("td", count_text(event.step)) + element("td", event.what) + element("td", event.details));
  }
  const Html head = element("tr", element("th", "step") + element("th", "what") + element("th", "details"));
  return element("div", {{"class", "wide"}},
                 element("table", {{"class", "list"}}, element("thead", head) + element("tbody", rows)));
}

Html checkpoints_of(const RunHistory& history) {
  std::vector<Row> rows;
  double stall = 0;
  std::size_t good = 0;
  for (const auto& [step, checkpoint] : history.checkpoints) {
    stall += checkpoint.stall_seconds.value_or(0);
    good += checkpoint.failure.empty() ? 1 : 0;
    rows.push_back({count_text(step), checkpoint.file, checkpoint.bytes ? bytes_text(*checkpoint.bytes) : "-",
                    checkpoint.seconds ? seconds_text(*checkpoint.seconds) : "-",
                    checkpoint.stall_seconds ? seconds_text(*checkpoint.stall_seconds) : "-",
                    checkpoint.failure.empty() ? "saved" : "failed"});
  }
  if (rows.empty()) return absence("No checkpoint was saved.");
  return paragraph(fmt::format("{} saved, beside training, which stood still for {} in all.",
                               several(good, "checkpoint"), seconds_text(stall))) +
         folded("Every checkpoint", table_of({"step", "file", "size", "took", "training stood still", ""}, rows));
}

}  // namespace

Html events_of(const RunHistory& history) {
  Html content = list_of(all_events(history));
  if (history.damaged_lines > 0) {
    content += paragraph(fmt::format("{} of metrics.jsonl {} no record, and {} passed over.",
                                     several(history.damaged_lines, "line"), history.damaged_lines == 1 ? "is" : "are",
                                     history.damaged_lines == 1 ? "was" : "were"));
  }
  return section_of("events", "What happened", content + element("h3", "Checkpoints") + checkpoints_of(history));
}

}  // namespace tutti
