#include "forecast.hpp"

#include "tutti/base/error.hpp"

#include "queued_messages.hpp"
#include "slowest_of_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <system_error>

namespace tutti {
namespace {

constexpr double kPlain = 4;  // bytes of an element in f32
constexpr double kExact = 8;  // and on the exact sum's grid

// Seconds on the straight line through two measured numbers of images. Below both, and with one alone, no less than in
// proportion to the images; beyond both, no less than measured.
struct Line {
  double low = 0;
  double high = 0;
  double images = 0;

  double operator()(double at_low, double at_high) const {
    const double in_proportion = at_low * images / low;
    if (low == high) return in_proportion;
    const double straight = std::lerp(at_low, at_high, (images - low) / (high - low));
    if (images < low) return std::max(straight, in_proportion);
    return images > high ? std::max(straight, at_high) : straight;
  }
};

// What one bucket, or all at once, is made of on the wire.
class Traffic {
 public:
  Traffic(const ForecastInputs& inputs, int ranks) : ranks_(ranks) {
    const int near = std::min(ranks, inputs.ranks_per_node);
    far_ = ranks - near;
    near_ = near - 1;
    if (near_ > 0 && !inputs.within) throw missing("within", near, inputs);
    if (far_ > 0 && !inputs.between) throw missing("between", ranks, inputs);
    links_ = {inputs.within.value_or(Link{0, 1}), inputs.between.value_or(Link{0, 1})};
  }

  const std::vector<Link>& links() const { return links_; }

  // Rings over all ranks, in which a sum goes around, what came of it, or both; 0 bytes an element: not.
  void add_rings(std::vector<QueuedOperation>& queue, double ready, double elements, double sum, double result) const {
    const double share = elements / ranks_;
    const double pieces = pieces_of(share * (sum > 0 ? sum : result));
    QueuedOperation ring{.ready = ready, .runs = {}};
    for (const double bytes : {sum, result}) {
      if (bytes > 0) {
        const double message = share * bytes / pieces;
        ring.runs.push_back({.messages = ranks_ - 1, .bytes = message, .link = slower_for(message)});
      }
    }
    queue.insert(queue.end(), static_cast<std::size_t>(pieces), ring);
  }

  // Between rank 0 and each other rank in turn.
  void add_stars(std::vector<QueuedOperation>& queue, double ready, double elements) const {
    const double pieces = pieces_of(elements * kPlain);
    const double message = elements * kPlain / pieces;
    QueuedOperation star{.ready = ready, .runs = {}};
    if (near_ > 0) star.runs.push_back({.messages = near_, .bytes = message, .link = 0});
    if (far_ > 0) star.runs.push_back({.messages = far_, .bytes = message, .link = 1});
    queue.insert(queue.end(), static_cast<std::size_t>(pieces), star);
  }

 private:
  static Error missing(const char* link, int ranks, const ForecastInputs& inputs) {
    return {
        ErrorSource::input,
        fmt::format("inputs of the forecast, {}: \"{}\" is null, but {} ranks at {} a node have such a link: measure "
                    "two of them, or give latency and bytes_per_second",
                    inputs.source, link, ranks, inputs.ranks_per_node)};
  }
  static double pieces_of(double bytes) { return std::max(1.0, std::ceil(bytes / kLongestMessageBytes)); }

  // In a ring every message waits for the slowest of its round.
  std::size_t slower_for(double bytes) const {
    const auto seconds = [bytes](const Link& link) { return link.latency + bytes / link.bytes_per_second; };
    if (far_ == 0) return 0;
    return near_ > 0 && seconds(links_[0]) > seconds(links_[1]) ? 0 : 1;
  }

  int ranks_;
  int near_ = 0;  // other ranks on rank 0's node
  int far_ = 0;   // and elsewhere
  std::vector<Link> links_;
};

struct PlayedStep {
  double seconds = 0;
  double compute = 0;  // all of it but the exchange
};

// The times at which layers are done, and with them buckets.
struct Timetable {
  std::vector<double> looks;
  std::vector<double> ready;  // by bucket
  double end = 0;
};

Timetable timetable_of(const ForecastInputs& inputs, const StepTimes& times) {
  Timetable table{.looks = {}, .ready = {}, .end = times.input};
  auto bucket = inputs.bucket_ends.begin();
  for (const StepTimes::Stretch& stretch : times.compute) {
    table.looks.push_back(table.end += stretch.seconds);
    for (; bucket != inputs.bucket_ends.end() && *bucket <= stretch.final_elements; ++bucket) {
      table.ready.push_back(table.end);
    }
  }
  if (!inputs.overlaps) std::ranges::fill(table.ready, table.end);
  return table;
}

// What rank 0's step takes, which in a star has most to do.
PlayedStep play_step(const ForecastInputs& inputs, const StepTimes& times, const ExchangeOptions& exchange, int ranks) {
  const Timetable table = timetable_of(inputs, times);
  const bool shared = exchange.owners() == Owners::shares;
  const double update = shared ? times.update / ranks : times.update;
  if (ranks == 1) return {.seconds = table.end + update, .compute = table.end + update};
  const Traffic traffic(inputs, ranks);
  const auto elements_of = [&](std::size_t bucket) {
    return static_cast<double>(inputs.bucket_ends[bucket] - (bucket == 0 ? 0 : inputs.bucket_ends[bucket - 1]));
  };
  std::vector<QueuedOperation> sums;
  for (std::size_t i = 0; i < table.ready.size(); ++i) {
    if (exchange.owners() == Owners::first) {
      traffic.add_stars(sums, table.ready[i], elements_of(i));
    } else {
      const bool exact = exchange.kind == Exchange::exact;
      traffic.add_rings(sums, table.ready[i], elements_of(i), exact ? kExact : kPlain, shared ? 0 : kPlain);
    }
  }
  if (exchange.kind == Exchange::exact) {  // what every rank judges the sum by: a value or so per layer
    traffic.add_rings(sums, table.end, static_cast<double>(ranks * times.compute.size()), 0, kPlain);
  }
  QueuedMessages messages(traffic.links());
  if (!inputs.helper_thread) messages.look_only_at(table.looks);
  const double updated = messages.play(sums, table.end) + update;
  std::vector<QueuedOperation> weights;
  for (std::size_t i = 0; exchange.owners() != Owners::everyone && i < table.ready.size(); ++i) {
    if (shared) {
      traffic.add_rings(weights, updated, elements_of(i), 0, kPlain);
    } else {
      traffic.add_stars(weights, updated, elements_of(i));
    }
  }
  return {.seconds = messages.play(weights, updated), .compute = table.end + update};
}

// Of the compute as it is on a full node, what it takes when so many ranks share the first.
double share_of_crowding(const ForecastInputs& inputs, int ranks) {
  if (ranks >= inputs.ranks_per_node) return 1;
  const double others = static_cast<double>(ranks - 1) / (inputs.ranks_per_node - 1);
  return std::lerp(1 / inputs.crowding, 1.0, others);
}

PlayedStep play_question(const ForecastInputs& inputs, const ForecastQuestion& question, int ranks, double slowness) {
  StepTimes times = times_for(inputs.compute, static_cast<double>(question.images_a_rank(ranks)));
  const double factor = slowness * share_of_crowding(inputs, ranks);
  for (StepTimes::Stretch& stretch : times.compute) stretch.seconds *= factor;
  return play_step(inputs, times, question.exchange, ranks);
}

double images_per_second(const ForecastQuestion& question, int ranks, double step_seconds) {
  const bool strong = question.mode == ScalingMode::strong;
  return static_cast<double>(question.batch) * (strong ? 1 : ranks) / step_seconds;
}

constexpr int kMostRanks = 1'000'000;

Error refused_ranks(const std::string& text) {
  return {ErrorSource::usage,
          fmt::format("--forecast {}: must be a span as 2..1024, which doubles, or numbers of ranks "
                      "as 3,5,7, from 1 to {}",
                      text, kMostRanks)};
}

int read_ranks(const std::string& text, const std::string& word) {
  int ranks = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), ranks);
  if (failure != std::errc() || end != word.data() + word.size() || ranks < 1 || ranks > kMostRanks) {
    throw refused_ranks(text);
  }
  return ranks;
}

}  // namespace

StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images) {
  std::size_t above = std::min<std::size_t>(1, profiles.size() - 1);
  while (above + 1 < profiles.size() && static_cast<double>(profiles[above].images) < images) ++above;
  const ComputeProfile& high = profiles[above];
  const ComputeProfile& low = profiles[above - std::min<std::size_t>(1, above)];
  const Line line{.low = static_cast<double>(low.images), .high = static_cast<double>(high.images), .images = images};
  StepTimes times;
  times.input = line(low.times.input, high.times.input);
  for (std::size_t i = 0; i < low.times.compute.size(); ++i) {
    times.compute.push_back({.seconds = line(low.times.compute[i].seconds, high.times.compute[i].seconds),
                             .final_elements = low.times.compute[i].final_elements});
  }
  times.update = low.times.update;  // however many images
  return times;
}

std::string_view name_of(ScalingMode mode) { return mode == ScalingMode::strong ? "strong" : "weak"; }

ForecastPoint forecast(const ForecastInputs& inputs, const ForecastQuestion& question, int ranks) {
  constexpr double kQuarter = 0.25;
  const SlowestOfRanks slowest(inputs.jitter);
  const auto play = [&](double slowness) { return play_question(inputs, question, ranks, slowness); };
  const PlayedStep step = play(slowest.expected(ranks));
  ForecastPoint point{.ranks = ranks, .nodes = (ranks + inputs.ranks_per_node - 1) / inputs.ranks_per_node};
  point.step_seconds = step.seconds;
  const double misfit = ranks == 1 ? 0 : inputs.misfit.value_or(0);
  point.low = std::min(step.seconds, play(slowest.quantile(ranks, kQuarter)).seconds) / (1 + misfit);
  point.high = std::max(step.seconds, play(slowest.quantile(ranks, 1 - kQuarter)).seconds) * (1 + misfit);
  point.exposed_seconds = step.seconds - step.compute;
  point.images_per_second = images_per_second(question, ranks, step.seconds);
  const double one = play_question(inputs, question, 1, slowest.expected(1)).seconds;
  const auto efficiency = [&](double seconds) {
    return images_per_second(question, ranks, seconds) / images_per_second(question, 1, one) / ranks;
  };
  point.efficiency = efficiency(step.seconds);
  point.efficiency_low = efficiency(point.high);
  point.efficiency_high = efficiency(point.low);
  return point;
}

std::string extrapolation_refusal(const ForecastInputs& inputs) {
  constexpr double kStatedError = 0.1;
  if (inputs.misfit.value_or(0) <= kStatedError) return {};
  return fmt::format(
      "forecast and measurement differ by {:.1f} % where both exist, and forecasts of more ranks are "
      "good to {:.0f} %: measure where nothing else runs, or give the JSON to --forecast-from to see them "
      "all the same",
      *inputs.misfit * 100, kStatedError * 100);
}

std::optional<int> stops_paying(const ForecastInputs& inputs, const ForecastQuestion& question, int most) {
  const SlowestOfRanks slowest(inputs.jitter);
  const auto speed = [&](int ranks) {
    return images_per_second(question, ranks, play_question(inputs, question, ranks, slowest.expected(ranks)).seconds);
  };
  const int node = inputs.ranks_per_node;
  const double enough = speed(node) / 2;
  const auto pays = [&](int nodes) { return speed((nodes + 1) * node) - speed(nodes * node) >= enough; };
  // What one more node adds falls with the nodes there are.
  const int last = most / node - 1;
  int unpaid = 1;
  while (unpaid <= last && pays(unpaid)) unpaid *= 2;
  int paid = unpaid / 2;
  for (unpaid = std::min(unpaid, last + 1); unpaid - paid > 1;) {
    const int middle = paid + (unpaid - paid) / 2;
    (pays(middle) ? paid : unpaid) = middle;
  }
  return unpaid > last ? std::nullopt : std::optional(unpaid * node);
}

std::vector<int> parse_forecast_ranks(const std::string& text) {
  std::vector<int> ranks;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const int first = read_ranks(text, text.substr(0, dots));
    const int last = read_ranks(text, text.substr(dots + 2));
    if (first > last) throw refused_ranks(text);
    for (int next = first; next < last; next *= 2) ranks.push_back(next);
    ranks.push_back(last);
    return ranks;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    ranks.push_back(read_ranks(text, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return ranks;
}

std::string forecast_inputs_table(const ForecastInputs& inputs) {
  const auto line = [](const char* name, const std::optional<Link>& link) {
    if (!link) return std::string();
    return fmt::format("  {:<20} {:.1f} us, {:.3f} GB/s\n", name, link->latency * 1e6, link->bytes_per_second / 1e9);
  };
  std::string text = fmt::format("forecast from: {}\n", inputs.source);
  text += fmt::format("  {:<20} {}, {:.1f} MB of gradients in {} buckets\n", "model", inputs.model,
                      static_cast<double>(inputs.bucket_ends.back()) * kPlain / 1e6, inputs.bucket_ends.size());
  text += fmt::format("  {:<20} {}\n", "ranks a node", inputs.ranks_per_node);
  text += fmt::format("  {:<20} {}\n", "exchange",
                      !inputs.overlaps       ? "after the backward pass"
                      : inputs.helper_thread ? "beside the backward pass"
                                             : "beside the backward pass, moved on between layers");
  for (const ComputeProfile& profile : inputs.compute) {
    text += fmt::format("  {:<20} {:.2f} ms, input {:.2f}, update {:.2f}\n",
                        fmt::format("compute of {} images", profile.images), profile.times.compute_seconds() * 1e3,
                        profile.times.input * 1e3, profile.times.update * 1e3);
  }
  if (inputs.ranks_per_node > 1) {
    text += fmt::format("  {:<20} {:.2f} times the compute of one rank alone\n", "a full node's", inputs.crowding);
  }
  text += line("link within a node", inputs.within) + line("link between nodes", inputs.between);
  text += fmt::format("  {:<20} {:.3f} to {:.3f} of the median, {} steps\n", "jitter of compute",
                      std::ranges::min(inputs.jitter), std::ranges::max(inputs.jitter), inputs.jitter.size());
  return text + fmt::format("  {:<20} {}\n", "misfit where fitted",
                            inputs.misfit
                                ? fmt::format("{:.1f} %", *inputs.misfit * 100)
                                : "unknown and not in the band: no whole node was measured with a core a thread");
}

std::string forecast_table(const std::vector<ForecastPoint>& points, const ForecastQuestion& question) {
  std::string text =
      fmt::format("{:>8} {:>6} {:>8} {:>6} {:>6} {:>10} {:>19} {:>10} {:>10} {:>10} {:>13}\n", "", "mode", "exchange",
                  "nodes", "ranks", "step ms", "low .. high", "exposed", "images/s", "efficiency", "low .. high");
  for (const ForecastPoint& point : points) {
    text += fmt::format(
        "{:>8} {:>6} {:>8} {:>6} {:>6} {:>10.2f} {:>8.2f} .. {:>7.2f} {:>10.2f} {:>10.0f} {:>10.2f} "
        "{:>5.2f} .. {:.2f}\n",
        "forecast", name_of(question.mode), name_of(question.exchange.kind), point.nodes, point.ranks,
        point.step_seconds * 1e3, point.low * 1e3, point.high * 1e3, point.exposed_seconds * 1e3,
        point.images_per_second, point.efficiency, point.efficiency_low, point.efficiency_high);
  }
  return text;
}

}  // namespace tutti
