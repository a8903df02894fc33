#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "csv_reader.hpp"
#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace tutti {
namespace {

std::int64_t held_out_samples(std::int64_t samples, double ratio) {
  return std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(samples)));
}

// The number of samples to hold out of each class, in proportion to the class sizes. What is left by rounding down goes
// to the largest remainders; of equal ones, to the classes that come first in `order`. A class keeps a sample for
// training as long as others have more.
std::map<std::int32_t, std::int64_t> shares_of_classes(std::span<const std::int32_t> labels, std::int64_t count,
                                                       std::span<const std::int64_t> order) {
  struct Class {
    std::int32_t label;
    std::int64_t samples = 0;
    std::int64_t share = 0;
    std::int64_t remainder = 0;
  };
  std::map<std::int32_t, std::size_t> place_of;
  std::vector<Class> classes;
  for (const std::int64_t sample : order) {
    const std::int32_t label = labels[static_cast<std::size_t>(sample)];
    if (place_of.emplace(label, classes.size()).second) classes.push_back({label});
    ++classes[place_of.at(label)].samples;
  }
  const std::int64_t all = std::ssize(labels);
  std::int64_t left = count;
  for (Class& each : classes) {
    each.share = count * each.samples / all;
    each.remainder = count * each.samples % all;
    left -= each.share;
  }
  std::ranges::stable_sort(classes, std::ranges::greater(),
                           [](const Class& each) { return std::pair(each.share + 1 < each.samples, each.remainder); });
  std::map<std::int32_t, std::int64_t> shares;
  for (const Class& each : classes) shares[each.label] = each.share + (left-- > 0 ? 1 : 0);
  return shares;
}

using NameOf = std::function<std::string(std::size_t)>;

// "FILE:COLUMN" names a column of the header; of a file without one, the second column counts.
struct GroupTable {
  explicit GroupTable(const std::string& named) : path(named) {
    const std::size_t colon = named.rfind(':');
    if (colon == std::string::npos || std::filesystem::exists(named)) return;
    path = named.substr(0, colon);
    column = named.substr(colon + 1);
  }
  std::string path;
  std::optional<std::string> column;
};

std::size_t column_of(const GroupTable& table, const CsvRow& header) {
  const auto found = std::ranges::find(header.fields, *table.column);
  if (found != header.fields.end()) return static_cast<std::size_t>(found - header.fields.begin());
  refuse_line(
      table.path, header.line,
      fmt::format("there is no column '{}': the first line names {}", *table.column, fmt::join(header.fields, ", ")));
}

struct GroupRow {
  std::string group;
  std::int64_t line = 0;
  std::optional<std::size_t> sample{};  // that it was found for
};

// By the names of images.
std::unordered_map<std::string, GroupRow> read_rows(const GroupTable& table) {
  const std::string text = read_file_text(table.path);
  CsvReader reader(text, table.path);
  std::unordered_map<std::string, GroupRow> rows;
  std::size_t column = 1;
  bool is_first = true;
  for (CsvRow row = reader.next(); !row.fields.empty(); row = reader.next()) {
    if (std::exchange(is_first, false)) {
      if (table.column) column = column_of(table, row);
      if (table.column || is_header(row)) continue;
    }
    if (row.fields.size() <= column) {
      refuse_line(
          table.path, row.line,
          fmt::format("{} fields instead of an image and its group, for example cat.jpg,tom", row.fields.size()));
    }
    const std::string& image = row.fields.front();
    const std::string& group = row.fields[column];
    if (group.empty()) refuse_line(table.path, row.line, fmt::format("'{}' has no group", image));
    const auto [known, is_new] = rows.try_emplace(image, GroupRow{group, row.line});
    if (!is_new && known->second.group != group) {
      refuse_line(
          table.path, row.line,
          fmt::format("'{}' has the group '{}' already, in line {}", image, known->second.group, known->second.line));
    }
  }
  return rows;
}

// The group of each sample. A row names an image by its path in the data set, with or without its
// extension, or by its name alone, if no other has that. Rows of other images are ignored.
std::vector<std::string> read_groups(const GroupTable& table, std::size_t samples, const NameOf& name_of) {
  auto rows = read_rows(table);
  std::vector<std::string> groups;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::filesystem::path path = name_of(sample);
    auto found = rows.end();
    for (const auto& form : {path, path.parent_path() / path.stem(), path.filename(), path.stem()}) {
      if (found == rows.end()) found = rows.find(form.string());
    }
    if (found == rows.end()) {
      throw Error(ErrorSource::input,
                  path.empty()
                      ? "--validation-groups: the images of these data have no names by which a table could "
                        "list them"
                      : fmt::format("--validation-groups: {} lists no group of '{}'", table.path, path.string()));
    }
    GroupRow& row = found->second;
    if (row.sample) {
      refuse_line(table.path, row.line,
                  fmt::format("'{}' is the name of {} and of {}: give the path in the data set", found->first,
                              name_of(*row.sample), path.string()));
    }
    row.sample = sample;
    groups.push_back(row.group);
  }
  return groups;
}

// Whole groups, in the order of their first samples. Each is held out if that brings its classes, or all samples
// together, closer to the ratio; if none does, the smallest.
std::vector<std::int64_t> choose_groups(std::span<const std::int32_t> labels, std::span<const std::string> groups,
                                        std::span<const std::int64_t> order, const DataRequest& request) {
  struct Group {
    std::vector<std::int64_t> samples{};
    std::map<std::int32_t, double> classes{};  // their numbers of samples
  };
  std::unordered_map<std::string, std::size_t> place_of;
  std::vector<Group> in_order;
  std::map<std::int32_t, double> all;
  for (const std::int64_t sample : order) {
    const auto i = static_cast<std::size_t>(sample);
    const std::int32_t label = request.split == Split::stratified ? labels[i] : 0;
    const auto [place, is_new] = place_of.emplace(groups[i], in_order.size());
    if (is_new) in_order.emplace_back();
    Group& group = in_order[place->second];
    group.samples.push_back(sample);
    ++group.classes[label];
    ++all[label];
  }
  if (in_order.size() < 2) {
    throw Error(ErrorSource::input, "--validation-groups: all images are of one group, so none can be held out");
  }
  std::map<std::int32_t, double> held;
  std::vector<std::int64_t> chosen;
  for (const Group& group : in_order) {
    double change = 0;  // of the sum over the classes of (held - wanted)^2 / samples
    for (const auto& [label, count] : group.classes) {
      const double wanted = request.validation_ratio * all[label];
      change += count * (2 * (held[label] - wanted) + count) / all[label];
    }
    const bool leaves_none = chosen.size() + group.samples.size() == labels.size();
    if (change >= 0 || leaves_none) continue;
    for (const auto& [label, count] : group.classes) held[label] += count;
    chosen.insert(chosen.end(), group.samples.begin(), group.samples.end());
  }
  if (chosen.empty()) {
    chosen = std::ranges::min(in_order, {}, [](const Group& group) { return group.samples.size(); }).samples;
  }
  std::ranges::sort(chosen);
  return chosen;
}

// The samples to hold out, ascending.
std::vector<std::int64_t> choose(std::span<const std::int32_t> labels, const NameOf& name_of,
                                 const DataRequest& request) {
  const std::int64_t samples = std::ssize(labels);
  const std::int64_t count = held_out_samples(samples, request.validation_ratio);
  if (count >= samples) {
    throw Error(ErrorSource::usage, fmt::format("--validation-ratio {} holds out {} of {} samples: nothing is left to "
                                                "train on; give a smaller one",
                                                request.validation_ratio, count, samples));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  RandomSequence random(request.seed, {.purpose = random_purpose("validation")});
  shuffle(order, random);
  if (!request.validation_groups.empty()) {
    const GroupTable table(request.validation_groups);
    return choose_groups(labels, read_groups(table, labels.size(), name_of), order, request);
  }
  if (request.split == Split::stratified) {
    auto shares = shares_of_classes(labels, count, order);
    std::vector<std::int64_t> chosen;
    for (const std::int64_t sample : order) {
      if (shares[labels[static_cast<std::size_t>(sample)]]-- > 0) chosen.push_back(sample);
    }
    order = std::move(chosen);
  }
  order.resize(static_cast<std::size_t>(count));
  std::ranges::sort(order);
  return order;
}

}  // namespace

bool matches_after_hold_out(std::uint64_t digest, const Dataset& whole, const DataRequest& request) {
  const auto labels = whole.labels();
  const auto name_of = [&](std::size_t i) { return whole.name_of(static_cast<std::int64_t>(i)); };
  try {
    const auto rows = choose(labels, name_of, request);
    return digest == whole.digest() + tutti::digest("left", std::span(rows));
  } catch (const Error&) {
    return false;  // too few samples, or a table of groups of other images
  }
}

LoadedSet hold_out(LoadedSet& set, const DataRequest& request) {
  const std::uint64_t whole = digest_of(set);
  const auto name_of = [&](std::size_t i) { return tutti::name_of(set, i); };
  const auto rows = choose(set.labels, name_of, request);
  LoadedSet taken = extract_samples(set, rows);
  taken.info.name += " (validation)";
  taken.digest = whole + digest("held out", std::span(rows));
  set.digest = whole + digest("left", std::span(rows));
  taken.info.skipped.clear();
  for (SkippedImage& skipped : set.info.skipped) {
    skipped.next_sample -= std::ranges::lower_bound(rows, skipped.next_sample) - rows.begin();
  }
  return taken;
}

}  // namespace tutti
