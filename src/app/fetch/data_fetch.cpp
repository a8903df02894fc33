#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/base/terminal_line.hpp"
#include "tutti/data/small_set.hpp"

#include "data_command.hpp"
#include "fetched_set.hpp"
#include "terminal.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace tutti {
namespace {

constexpr double kMebibyte = 0x1p20;

// One line of progress a file, and notes between them.
class FetchReporter {
 public:
  FetchReporter(const World& world, const RunConfig& config)
      : log_(world.rank(), world.host(), config.quiet), draws_(draws_progress(config)) {}

  SetWatch watch() {
    return {.progress = [this](const PublishedFile& file, std::int64_t bytes) { progress(file, bytes); },
            .note =
                [this](const std::string& words) {
                  line_.clear();
                  log_.note(words);
                }};
  }

 private:
  void progress(const PublishedFile& file, std::int64_t bytes) {
    if (!draws_) return;
    if (name_ != file.name) {
      name_ = file.name;
      first_ = bytes;
      since_first_.restart();
    }
    line_.draw([&] {
      const double seconds = since_first_.seconds();
      const double speed = seconds > 0 ? static_cast<double>(bytes - first_) / seconds / kMebibyte : 0;
      return fmt::format("{} {:.1f} of {:.1f} MiB, {} %, {:.1f} MiB/s", file.name,
                         static_cast<double>(bytes) / kMebibyte, static_cast<double>(file.bytes) / kMebibyte,
                         100 * bytes / file.bytes, speed);
    });
  }

  Log log_;
  bool draws_;
  TerminalLine line_;
  std::string name_;  // of the file that is on its way
  std::int64_t first_ = 0;
  Stopwatch since_first_;
};

// The places of a set, or the one that is asked for.
PublishedSet set_to_fetch(std::string_view name, const std::string& url) {
  PublishedSet set = published_set(name);
  if (url.empty()) return set;
  if (!url.starts_with("https://") && !url.starts_with("http://")) {
    throw Error(ErrorSource::usage, fmt::format("--url {}: give the https:// or http:// address of a folder that holds "
                                                "the published files",
                                                url));
  }
  set.places = {url.ends_with('/') ? url : url + '/'};
  return set;
}

void fetch_small(const SmallSet& set, const FetchRequest& request, FetchReporter& reporter) {
  const std::string from = fmt::format("{}/{}", request.to, set.of);
  const std::string to = fmt::format("{}/{}", request.to, set.name);
  fetch_set(set_to_fetch(set.of, request.url), from, reporter.watch());
  make_folder(to);
  write_small_set(set, from, to);
  reporter.watch().note(fmt::format("{}: the first {} training and {} test images of each class of '{}'", set.name,
                                    set.train_images_per_class, set.test_images_per_class, from));
}

void fetch(const World& world, const Invocation& invocation) {
  const FetchRequest& request = invocation.fetch;
  FetchReporter reporter(world, invocation.run);
  const std::string folder = fmt::format("{}/{}", request.to, request.name);
  if (request.name == kTinyCifar.name) {
    fetch_small(kTinyCifar, request, reporter);
  } else {
    fetch_set(set_to_fetch(request.name, request.url), folder, reporter.watch());
  }
  DataRequest written;
  written.train = folder;
  const OwnedData data = open_noted(RunConfig{}, written, world);
  const DatasetInfo& info = data.pair.train->info();
  fmt::print("{}: {} training and {} test images of {}, {} classes; train on it: {} --data {}\n", folder, info.samples,
             data.pair.test ? data.pair.test->info().samples : 0, info.image.text(), info.classes, program_call(),
             request.to == FetchRequest{}.to ? request.name : folder);
}

}  // namespace

ExitStatus data_fetch(World& world, const Invocation& invocation) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    fetch(world, invocation);
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

}  // namespace tutti
