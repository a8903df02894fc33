#include "trace_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// The limits correspond to 8 MiB per rank and a file of about 500 MB.
constexpr std::size_t kMaxSpansPerRank = std::size_t{1} << 18;
constexpr std::size_t kMaxSpans = std::size_t{1} << 22;
// The phases are gathered in this many pieces, so that each gather stays below 10 MiB.
constexpr std::size_t kPieces = 16;

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

struct Clocks {
  ClockReading begin;
  ClockReading end;
};

// The file's begin: the clocks and names of all ranks.
std::string head_text(const std::vector<std::string>& hosts, const std::vector<Clocks>& clocks) {
  Json readings;
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto& [first, last] = clocks[rank];
    readings.push_back({{"rank", rank},
                        {"host", hosts[rank]},
                        {"offset_us", microseconds(first.offset_ns)},
                        {"drift_us", microseconds(last.offset_ns - first.offset_ns)},
                        {"error_us", microseconds(std::max(first.error_ns, last.error_ns))}});
    names.push_back(Json{{"name", "process_name"},
                         {"ph", "M"},
                         {"pid", rank},
                         {"tid", 0},
                         {"args", {{"name", fmt::format("rank {} on {}", rank, hosts[rank])}}}}
                        .dump());
  }
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n{}",
                     Json{{"clocks", readings}}.dump(), fmt::join(names, ",\n"));
}

std::int64_t epoch_of(std::int64_t step, const std::vector<EpochEnd>& epochs) {
  const auto epoch = std::ranges::lower_bound(epochs, step, {}, &EpochEnd::step);
  if (epoch != epochs.end()) return epoch->epoch;
  return epochs.empty() ? 1 : epochs.back().epoch;
}

std::string events_text(std::size_t rank, const std::vector<PhaseSpan>& spans, const std::vector<Clocks>& clocks,
                        const std::vector<EpochEnd>& epochs) {
  const auto& [first, last] = clocks[rank];
  const auto since_begin = [&](std::int64_t own_ns) {
    return root_clock_ns(first, last, own_ns) - clocks.front().begin.at_ns;
  };
  std::string text;
  for (const PhaseSpan& span : spans) {
    const std::int64_t begin = since_begin(span.begin_ns);
    fmt::format_to(
        std::back_inserter(text),
        ",\n{{\"name\":\"{}\",\"cat\":\"train\",\"ph\":\"X\",\"pid\":{},\"tid\":0,\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{\"step\":{},\"epoch\":{}}}}}",
        name_of(span.at.phase), rank, microseconds(begin), microseconds(since_begin(span.end_ns) - begin), span.at.step,
        epoch_of(span.at.step, epochs));
  }
  return text;
}

void append(AtomicFile& file, std::string_view text) { file.append(std::as_bytes(std::span(text))); }

}  // namespace

TraceFile::TraceFile(World& world, RankStatus& rank_status, std::string path)
    : world_(world),
      rank_status_(rank_status),
      path_(std::move(path)),
      most_(std::min(kMaxSpansPerRank, kMaxSpans / static_cast<std::size_t>(world.size()) + 1)),
      begin_(measure_clock_offset(world)) {
  rank_status_.enter(rank_status_.current().phase);
  rank_status_.add(*this);
}

void TraceFile::on_end(const PhaseSpan& span) {
  if (spans_.size() < most_) return spans_.push_back(span);
  spans_[oldest_] = span;
  oldest_ = (oldest_ + 1) % most_;
}

void TraceFile::write(const std::vector<EpochEnd>& epochs, const Log& log) {
  rank_status_.enter(rank_status_.current().phase);
  rank_status_.remove(*this);
  std::ranges::rotate(spans_, spans_.begin() + static_cast<std::ptrdiff_t>(oldest_));
  const Clocks mine{.begin = begin_, .end = measure_clock_offset(world_)};
  const auto hosts = all_gather_text(world_, world_.host());
  std::vector<Clocks> clocks;
  for (const auto& of_rank : all_gather_values<Clocks>(world_, std::span(&mine, 1))) clocks.push_back(of_rank.front());
  std::optional<AtomicFile> file;
  std::string failure;
  const auto attempt = [&](const auto& action) {
    if (world_.rank() != 0 || !failure.empty()) return;
    try {
      action();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  attempt([&] { append(file.emplace(path_), head_text(hosts, clocks)); });
  std::span<const PhaseSpan> left = spans_;
  for (bool all_gathered = false; !all_gathered;) {
    const auto next = left.first(std::min(left.size(), most_ / kPieces + 1));
    left = left.subspan(next.size());
    const auto all = all_gather_values(world_, next);
    all_gathered = std::ranges::all_of(all, [](const auto& spans) { return spans.empty(); });
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      attempt([&] { append(*file, events_text(rank, all[rank], clocks, epochs)); });
    }
  }
  attempt([&] {
    append(*file, "\n]}\n");
    file->commit();
  });
  if (world_.rank() != 0) return;
  if (!failure.empty()) return log.warn(fmt::format("--trace: no trace was written: {}", failure));
  log.info(fmt::format("--trace: steps {} to {} of all ranks in {}{}", spans_.front().at.step, spans_.back().at.step,
                       path_, spans_.size() < most_ ? "" : "; earlier steps were dropped"));
}

}  // namespace tutti
