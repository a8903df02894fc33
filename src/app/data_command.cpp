#include "data_command.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/base/terminal_line.hpp"
#include "tutti/base/utf8.hpp"
#include "tutti/data/data_file.hpp"

#include "assemble.hpp"
#include "own_parts.hpp"
#include "plural.hpp"
#include "resolve_options.hpp"
#include "terminal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

namespace tutti {
namespace {

// A source larger than this is not held in memory to be copied.
constexpr std::size_t kMostResidentBytes = std::size_t{1} << 28;

std::string size_text(const DatasetInfo& info) {
  return info.sizes_differ() ? fmt::format("{} channels, of different sizes", info.image[0]) : info.image.text();
}

std::string set_line(const char* which, const Dataset& set) {
  const std::size_t bytes = set.resident_bytes();
  const std::string where = bytes == 0 ? std::string("read piece by piece")
                                       : fmt::format("in memory, {:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
  return fmt::format("{:<10} {} images of {}, digest {}, {}\n", which, set.info().samples, size_text(set.info()),
                     digest_text(set.digest()), where);
}

std::string verified_text(const DataPair& data) {
  std::int64_t files = 0;
  std::int64_t decoded = 0;
  for (const auto* const set : {data.train.get(), data.test.get()}) {
    if (set == nullptr || !set->info().contents) continue;
    files += set->info().samples;
    decoded += set->info().contents->sampled;
  }
  if (files == 0) return "all bytes";
  return fmt::format("the headers of {} images; {} of them decoded", files, decoded);
}

std::string statistic_text(const std::vector<double>& values) {
  return values.empty() ? "unknown; data convert finds it" : fmt::format("{:.4f}", fmt::join(values, " "));
}

std::string classes_text(const DataPair& data) {
  const DatasetInfo& info = data.train->info();
  std::string text = fmt::format("{:<10} {}\n", "classes", info.classes);
  std::size_t width = 4;
  for (const std::string& name : info.class_names) width = std::max(width, printable(name).size());
  text += fmt::format("{:>5}  {:<{}} {:>9} {:>9}\n", "label", "name", width, "training", "test");
  for (std::size_t label = 0; label < info.class_samples.size(); ++label) {
    const std::string name = label < info.class_names.size() ? printable(info.class_names[label]) : "-";
    const bool is_counted = data.test && label < data.test->info().class_samples.size();
    const std::string of_test = is_counted ? fmt::format("{}", data.test->info().class_samples[label]) : "-";
    text += fmt::format("{:>5}  {:<{}} {:>9} {:>9}\n", label, name, width, info.class_samples[label], of_test);
  }
  return text;
}

std::int64_t samples_of(const std::unique_ptr<Dataset>& set) { return set ? set->info().samples : 0; }

// Writes both sets, and tells on a terminal how far it has come.
void write_watched(const OwnedData& data, const Invocation& invocation, int threads) {
  const std::int64_t all = samples_of(data.pair.train) + samples_of(data.pair.test);
  const bool draws = draws_progress(invocation.run);
  TerminalLine line;
  const Stopwatch watch;
  std::int64_t written = 0;
  const auto tell = [&](std::int64_t more) {
    written += more;
    if (!draws) return;
    line.draw([&] {
      return fmt::format("{} of {} images, {} %, {:.0f} images/s", written, all, 100 * written / all,
                         static_cast<double>(written) / watch.seconds());
    });
  };
  write_data_file(data.pair, invocation.target,
                  {.image_size = invocation.run.image_size, .threads = threads, .after_samples = tell});
  line.clear();
  const double size = static_cast<double>(std::filesystem::file_size(invocation.target)) / 0x1p20;
  fmt::print("{}: {} training and {} test images, {:.1f} MiB, in {:.1f} sec on {}\n", invocation.target,
             samples_of(data.pair.train), samples_of(data.pair.test), size, watch.seconds(), plural(threads, "thread"));
}

// HDF5 under another ending would be taken for what it is not.
void refuse_other_ending(const std::filesystem::path& target) {
  std::string ending = target.extension();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending == ".h5" || ending == ".hdf5") return;
  throw Error(ErrorSource::usage,
              fmt::format("'{}': data convert writes an HDF5 file, whose name ends in .h5 or .hdf5", target.string()));
}

}  // namespace

OwnedData open_noted(const RunConfig& config, const DataRequest& request, const World& world) {
  const OwnData* const own = find_own_data(config);
  OwnedData data = own == nullptr ? open_data(request) : OwnedData{{}, open_own(*own, request.unlabelled_too)};
  for (const std::string& note : data.pair.notes) Log(world.rank(), world.host(), false).note(note);
  return data;
}

ExitStatus data_convert(World& world, const Invocation& invocation) {
  const Cores cores = count_cores(world);
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    const std::string& target = invocation.target;
    refuse_other_ending(target);
    refuse_unknown_words(invocation.run);
    std::error_code unknown;
    if (std::filesystem::exists(target, unknown)) {
      throw Error(ErrorSource::usage, fmt::format("'{}' is there already: remove it, or choose another name", target));
    }
    DataRequest request = data_request(invocation.run);
    if (invocation.run.resident_mib == 0) request.most_resident_bytes = kMostResidentBytes;
    request.data_file_check = DataFileCheck::without_checksums;
    const OwnedData data = open_noted(invocation.run, request, world);
    write_watched(data, invocation, invocation.threads > 0 ? static_cast<int>(invocation.threads) : cores.mine);
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

ExitStatus data_info(World& world, const Invocation& invocation) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    refuse_unknown_words(invocation.run);
    DataRequest request = data_request(invocation.run);
    if (invocation.run.verify_data) request.verification = Verification::sample;
    const OwnedData data = open_noted(invocation.run, request, world);
    const DatasetInfo& info = data.pair.train->info();
    std::string text = fmt::format("{:<10} {}\n", "name", info.name) + set_line("training", *data.pair.train);
    text += data.pair.test ? set_line("test", *data.pair.test) : fmt::format("{:<10} none\n", "test");
    if (invocation.run.verify_data) text += fmt::format("{:<10} {}\n", "verified", verified_text(data.pair));
    text += fmt::format("{:<10} {}\n", "mean", statistic_text(info.statistics.mean));
    text += fmt::format("{:<10} {}\n", "deviation", statistic_text(info.statistics.deviation));
    fmt::print("{}{}", text, classes_text(data.pair));
  });
  return ExitStatus::done;
}

}  // namespace tutti
