#include "chart.hpp"
#include "figure_text.hpp"
#include "sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti {
namespace {

constexpr std::array<const char*, kTimeShares> kLooks{"s0", "s1", "s2", "s3", "s4", "s5", "s6"};
constexpr std::size_t kMostColumns = 100;

// From what training is for, at the foot, to what is lost.
constexpr std::array kOrder{TimeShare::compute,       TimeShare::data,    TimeShare::evaluation, TimeShare::checkpoint,
                            TimeShare::communication, TimeShare::waiting, TimeShare::other};

struct Lateness {
  std::string host;
  double seconds = 0;
  int stretches = 0;                     // in which it was the latest
  std::map<std::string, double> causes;  // seconds
};

struct TimeSums {
  TimeShares all;
  std::map<std::int64_t, TimeShares> epochs;
  std::vector<TimeShares> ranks;
  std::map<int, Lateness> late;
};

void add(TimeShares& sum, const TimeShares& more) {
  for (std::size_t i = 0; i < kTimeShares; ++i) sum.seconds[i] += more.seconds[i];
}

TimeSums sums_of(const RunHistory& history) {
  TimeSums sums;
  for (const auto& [step, time] : history.times) {
    add(sums.all, time.mean);
    add(sums.epochs[time.epoch], time.mean);
    if (sums.ranks.size() < time.ranks.size()) sums.ranks.resize(time.ranks.size());
    for (std::size_t i = 0; i < time.ranks.size(); ++i) add(sums.ranks[i], time.ranks[i]);
    if (!time.latest) continue;
    Lateness& late = sums.late[time.latest->rank];
    late.host = time.latest->host;
    late.seconds += time.latest->seconds;
    late.causes[time.cause] += time.latest->seconds;
    ++late.stretches;
  }
  return sums;
}

ChartColumn column_of(const std::string& name, const TimeShares& shares, double part = 1) {
  ChartColumn column{.name = name};
  for (const TimeShare share : kOrder) column.pieces.push_back(shares[share] * part);
  return column;
}

ColumnChart chart_of(const char* title, const char* x_name) {
  ColumnChart chart{.title = title, .unit = "s", .x_name = x_name};
  for (const TimeShare share : kOrder) {
    chart.pieces.emplace_back(name_of(share));
    chart.looks.push_back(kLooks[static_cast<std::size_t>(share)]);
  }
  return chart;
}

// Many epochs share columns, of which each is their mean.
Html chart_of_epochs(const TimeSums& sums) {
  ColumnChart chart = chart_of("By epoch", "epoch");
  const std::size_t together = (sums.epochs.size() + kMostColumns - 1) / kMostColumns;
  for (auto epoch = sums.epochs.begin(); epoch != sums.epochs.end();) {
    const std::string name = fmt::format("{}", epoch->first);
    TimeShares sum;
    std::size_t count = 0;
    for (; count < together && epoch != sums.epochs.end(); ++count, ++epoch) add(sum, epoch->second);
    chart.columns.push_back(column_of(name, sum, 1.0 / static_cast<double>(count)));
  }
  if (together > 1) chart.title += fmt::format(", means of {} epochs", together);
  return draw(chart);
}

Html chart_of_ranks(const TimeSums& sums) {
  ColumnChart chart = chart_of("By rank, in all", "rank");
  for (std::size_t i = 0; i < sums.ranks.size(); ++i) {
    chart.columns.push_back(column_of(fmt::format("{}", i), sums.ranks[i]));
  }
  return draw(chart);
}

Html table_of_shares(const TimeShares& all) {
  constexpr std::array<const char*, kTimeShares> kMeaning{"waiting for images to be read and prepared",
                                                          "forward, backward and the update of the weights",
                                                          "gradients on their way that compute did not hide",
                                                          "standing still until other ranks have come",
                                                          "the test set",
                                                          "copying the state to be saved",
                                                          "all else"};
  std::vector<Row> rows;
  for (const TimeShare share : kOrder) {
    rows.push_back({name_of(share), seconds_text(all[share]), percent_text(all.sum() > 0 ? all[share] / all.sum() : 0),
                    kMeaning[static_cast<std::size_t>(share)]});
  }
  return table_of({"", "mean of the ranks", "share", "what it is"}, rows);
}

Html table_of_late_ranks(const TimeSums& sums) {
  std::vector<std::pair<int, Lateness>> late(sums.late.begin(), sums.late.end());
  std::ranges::stable_sort(late, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::vector<Row> rows;
  for (const auto& [rank, lateness] : late) {
    const auto cause = std::ranges::max_element(lateness.causes, {}, [](const auto& each) { return each.second; });
    rows.push_back({fmt::format("{} on {}", rank, lateness.host), seconds_text(lateness.seconds),
                    fmt::format("{}", lateness.stretches), cause->first});
  }
  return table_of({"rank", "each other one waited for it", "epochs it was the latest in", "mostly because of"}, rows);
}

}  // namespace

Html times_of(const RunHistory& history) {
  if (history.times.empty()) {
    return section_of("time", "Where the time went", absence("No epoch has told where its time went."));
  }
  const TimeSums sums = sums_of(history);
  Html charts = chart_of_epochs(sums);
  if (sums.ranks.size() > 1) charts += chart_of_ranks(sums);
  Html content = element("div", {{"class", "charts"}}, charts) + table_of_shares(sums.all);
  if (!sums.late.empty()) {
    content += element("h3", "Who was waited for") + table_of_late_ranks(sums);
  } else {
    content += paragraph("Nobody was waited for: the rank was alone.");
  }
  return section_of("time", "Where the time went", content);
}

}  // namespace tutti
