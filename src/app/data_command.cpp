#include "tutti/backend/backend.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/text.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "assemble.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "pictures.hpp"
#include "preflight/options.hpp"
#include "scoring.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

namespace tutti {
namespace {

// Larger data sets are copied without loading them into memory.
constexpr std::size_t kMaxResidentBytes = std::size_t{1} << 28;

// The data set of the request, or the custom one that the configuration names. Prints its notes.
OwnedData open_noted(const RunConfig& config, const DataRequest& request, const World& world) {
  const CustomData* const custom = find_custom_data(config);
  OwnedData data =
      custom == nullptr ? open_data(request) : OwnedData{{}, open_custom(*custom, request.allow_unlabelled)};
  const Log log(world.rank(), world.host(), false);
  for (const std::string& note : data.pair.notes) log.info(note);
  if (const std::string note = one_class_text(data.pair.train->info()); !note.empty()) log.info(note);
  return data;
}

std::string size_text(const DatasetInfo& info) {
  return info.sizes_differ() ? fmt::format("{} channels, of different sizes", info.image[0]) : info.image.text();
}

std::string set_line(const char* which, const Dataset& set) {
  const std::size_t bytes = set.resident_bytes();
  const std::string where = bytes == 0 ? std::string("read lazily") : fmt::format("in memory, {:.1f} MiB", mebi(bytes));
  return fmt::format("{:<10} {} images of {}, digest {}, {}\n", which, set.info().samples, size_text(set.info()),
                     digest_text(set.digest()), where);
}

std::string verified_text(const DataPair& data) {
  std::int64_t files = 0;
  std::int64_t decoded = 0;
  bool has_read_all = true;
  for (const auto* const set : {data.train.get(), data.test.get()}) {
    if (set == nullptr || !set->info().contents) continue;
    files += set->info().samples;
    // A set that was held out has the contents of all files.
    const bool is_held_out = set == data.test.get() && set->info().contents == data.train->info().contents;
    decoded += is_held_out ? 0 : set->info().contents->sampled_files;
    has_read_all = has_read_all && set->info().contents->whole;
  }
  if (files == 0) return "all bytes";
  return fmt::format("the {} of {} images; {} of them decoded", has_read_all ? "bytes" : "headers", files, decoded);
}

std::string statistic_text(const std::vector<double>& values) {
  return values.empty() ? "unknown; data convert computes it" : fmt::format("{:.4f}", fmt::join(values, " "));
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

// A line for each class folder without images, and for each image file that was left out.
std::vector<std::string> problems_of(const DataPair& data) {
  std::vector<std::string> problems = data.empty_classes;
  for (const auto* const set : {data.train.get(), data.test.get()}) {
    if (set == nullptr) continue;
    for (const SkippedImage& skipped : set->info().skipped) problems.push_back(skipped.problem);
  }
  return problems;
}

std::int64_t samples_of(const std::unique_ptr<Dataset>& set) { return set ? set->info().samples : 0; }

constexpr double kSecondsBetweenLines = 30;  // of progress, without a terminal

// Ends a conversion because of a signal.
struct StopRequest {};

// Shows the progress of a conversion, and stops it on a signal.
class ConversionProgress {
 public:
  ConversionProgress(const Invocation& invocation, const StopSignals* signals)
      : signals_(signals),
        draws_(draws_progress(invocation.run)),
        prints_(invocation.run.output.progress == ShowProgress::automatic && !invocation.run.output.quiet) {}

  void begin(std::int64_t before, std::int64_t all) {
    if (signals_ != nullptr) signals_->begin_polling();
    before_ = before;
    all_ = all;
  }
  void add(std::int64_t more) {
    written_ += more;
    if (draws_) line_.draw([&] { return text(); });
    if (!draws_ && prints_ && watch_.seconds() >= next_line_) {
      write_stderr_line(text());
      next_line_ = watch_.seconds() + kSecondsBetweenLines;
    }
    if (signals_ != nullptr && signals_->first() != 0) throw StopRequest{};
  }
  double end() {
    line_.clear();
    return watch_.seconds();
  }

 private:
  std::string text() const {
    const std::int64_t done = before_ + written_;
    const std::string of = all_ == 0 ? "" : fmt::format(" of {}", all_);
    const std::string share = all_ == 0 ? "" : fmt::format(", {} %", 100 * done / all_);
    return fmt::format("{}{} images{}, {:.0f} images/s", done, of, share,
                       static_cast<double>(written_) / watch_.seconds());
  }

  const StopSignals* signals_;
  bool draws_;
  bool prints_;
  TerminalLine line_;
  Stopwatch watch_;
  double next_line_ = kSecondsBetweenLines;
  std::int64_t before_ = 0;  // converted by earlier processes
  std::int64_t written_ = 0;
  std::int64_t all_ = 0;
};

void print_result(const Invocation& invocation, std::int64_t train, std::int64_t test, std::int64_t bytes,
                  double seconds, int threads) {
  fmt::print("{}: {} training and {} test images, {:.1f} MiB, in {:.1f} sec on {}\n", invocation.target, train, test,
             mebi(static_cast<std::size_t>(bytes)), seconds, plural(threads, "thread"));
}

void convert_pixels(const OwnedData& data, const Invocation& invocation, ConversionProgress& progress, int threads) {
  const std::int64_t train = samples_of(data.pair.train);
  const std::int64_t test = samples_of(data.pair.test);
  progress.begin(0, train + test);
  write_data_file(data.pair, invocation.target,
                  {.image_size = invocation.run.recipe.image_size,
                   .threads = threads,
                   .after_samples = [&](std::int64_t more) { progress.add(more); }});
  print_result(invocation, train, test, static_cast<std::int64_t>(std::filesystem::file_size(invocation.target)),
               progress.end(), threads);
}

void convert_encoded(const DataRequest& request, const Invocation& invocation, const Log& log,
                     ConversionProgress& progress, int threads) {
  EncodedOptions options = invocation.encode.options;
  options.threads = threads;
  options.at_start = [&](std::int64_t before, std::int64_t all) {
    if (before > 0) log.info(fmt::format("continuing after the first {} images", before));
    progress.begin(before, all);
  };
  options.after_samples = [&](std::int64_t more) { progress.add(more); };
  const EncodedReport report = write_encoded_file(request, invocation.target, options);
  const double seconds = progress.end();
  for (const std::string& note : report.notes) log.info(note);
  if (report.skipped > 0) {
    log.info(fmt::format("{} skipped: first {}", plural(static_cast<std::size_t>(report.skipped), "image"),
                         printable(report.first_problem)));
  }
  print_result(invocation, report.train_samples, report.test_samples, report.bytes, seconds, threads);
  if (report.encoded_again > 0) fmt::print("{} images were resized\n", report.encoded_again);
  if (report.files > 1) fmt::print("{} HDF5 files: keep them in one folder\n", report.files);
}

void refuse_other_options(const Invocation& invocation) {
  const EncodeRequest& encode = invocation.encode;
  const bool resizes = encode.options.short_side > 0 || encode.options.long_side > 0;
  const auto refuse = [](const char* text) { throw Error(ErrorSource::usage, text); };
  if (encode.encoded && invocation.run.recipe.image_size > 0) {
    refuse("--image-size crops images to one size, and --encoded keeps them whole: give --short-side");
  }
  if (!encode.encoded && (resizes || encode.options.shard_bytes > 0)) {
    refuse("--short-side, --long-side and --shard-size are for image files that are kept: give --encoded, too");
  }
  if (!resizes && encode.options.quality != EncodedOptions().quality) {
    refuse("--quality is for images that are resized: give --encoded and --short-side or --long-side, too");
  }
}

void refuse_other_ending(const std::filesystem::path& target) {
  const std::string ending = in_lower_case(target.extension());
  if (ending == ".h5" || ending == ".hdf5") return;
  throw Error(ErrorSource::usage,
              fmt::format("'{}': data convert writes HDF5: give a name that ends in .h5 or .hdf5", target.string()));
}

// The images of one step of a run with these options.
struct ShownStep {
  std::int64_t epoch = 0;  // epoch and step are counted from 1
  std::int64_t step = 0;   // of the run
  std::vector<std::int64_t> samples{};
  std::vector<std::vector<std::uint8_t>> pixels{};  // of each sample, as the network gets it
};

LoaderPlan plan_of(const RunConfig& config, const Dataset& data) {
  const int parts = config.trainer.num_parts == 0 ? 1 : static_cast<int>(config.trainer.num_parts);
  return {.batch_size = config.trainer.batch_size,
          .num_parts = parts,
          .parts = {0, parts},
          .last_batch = config.trainer.last_batch,
          .order = {.shuffle = config.trainer.shuffle, .seed = config.trainer.seed, .labels = data.labels()},
          .steps_ahead = 0,
          .recipe = make_recipe(config.recipe, data)};
}

bool is_normalized(const ImageRecipe& recipe) { return !recipe.statistics.mean.empty(); }

// Values that are not normalized are pixel / 255; normalized ones are shown from -3 (black) to 3 (white).
std::vector<std::uint8_t> shown_pixels(std::span<const float> values, bool normalized) {
  std::vector<std::uint8_t> pixels;
  for (const float value : values) {
    const float level = normalized ? (value + 3) / 6 : value;
    pixels.push_back(static_cast<std::uint8_t>(std::clamp(level, 0.0f, 1.0f) * 255.0f + 0.5f));
  }
  return pixels;
}

ShownStep prepare(const Dataset& data, const LoaderPlan& plan, const ShowRequest& request) {
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  BatchLoader loader(data, *backend, plan);
  const SplitBatchSampler& sampler = loader.sampler();
  const std::int64_t epoch = request.step > 0 ? sampler.epoch_of(request.step) : request.epoch - 1;
  loader.seek(epoch, request.step > 0 ? request.step - 1 - sampler.steps_before(epoch) : 0);
  const StepBatches& batches = loader.next(*stream);
  stream->synchronize();
  ShownStep shown{.epoch = batches.epoch + 1, .step = sampler.steps_before(batches.epoch) + batches.step + 1};
  const auto samplers = SplitBatchSampler::for_parts(data.info().samples, plan.batch_size, plan.num_parts, plan.parts,
                                                     plan.last_batch, plan.order);
  const auto elements = static_cast<std::size_t>(plan.recipe.image.elements());
  for (const Batch& batch : batches.batches) {
    const auto samples = samplers[static_cast<std::size_t>(batch.part)].indices(batches.epoch, batches.step);
    shown.samples.insert(shown.samples.end(), samples.begin(), samples.end());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto values = host_f32(batch.images).subspan(i * elements, elements);
      shown.pixels.push_back(shown_pixels(values, is_normalized(plan.recipe)));
    }
  }
  return shown;
}

void refuse_unshowable(const std::string& target, const DatasetInfo& info) {
  if (!target.ends_with(".png")) {
    throw Error(ErrorSource::usage,
                fmt::format("'{}': data show writes a PNG file: give a name that ends in .png", target));
  }
  if (info.image[0] != 1 && info.image[0] != 3) {
    throw Error(ErrorSource::usage, fmt::format("the images of {} have {} channels: only 1 (gray) and 3 (color) can "
                                                "be shown",
                                                info.name, info.image[0]));
  }
}

}  // namespace

std::int64_t parse_shard_size(const std::string& text) {
  constexpr std::array<std::string_view, 4> kUnits{"KiB", "MiB", "GiB", "TiB"};
  if (text.empty()) return 0;
  for (std::size_t unit = 0; unit < kUnits.size(); ++unit) {
    if (!text.ends_with(kUnits[unit])) continue;
    const auto number = parse_number<std::int64_t>(trimmed(std::string_view(text).substr(0, text.size() - 3)));
    if (number && *number > 0 && *number <= 1 << 20) return *number << (10 * (unit + 1));
  }
  throw Error(ErrorSource::usage, fmt::format("--shard-size {}: must be such as 512MiB or 4GiB", text));
}

ExitStatus data_convert(World& world, const Invocation& invocation, CommandContext& context) {
  const Cores cores = count_cores(world);
  bool is_stopped = false;
  on_rank_0(world, [&] {
    refuse_other_options(invocation);
    const std::string& target = invocation.target;
    refuse_other_ending(target);
    if (file_exists(target)) {
      throw Error(ErrorSource::usage, fmt::format("'{}' exists: remove it, or choose another name", target));
    }
    DataRequest request = invocation.run.data;
    if (request.most_resident_bytes == 0) request.most_resident_bytes = kMaxResidentBytes;
    request.data_file_check = DataFileCheck::without_checksums;
    const int threads = invocation.threads > 0 ? static_cast<int>(invocation.threads) : cores.mine;
    try {
      if (invocation.encode.encoded) {
        ConversionProgress progress(invocation, context.signals);
        convert_encoded(request, invocation, Log(world.rank(), world.host(), invocation.run.output.quiet), progress,
                        threads);
      } else {
        const OwnedData data = open_noted(invocation.run, request, world);
        ConversionProgress progress(invocation, context.signals);
        convert_pixels(data, invocation, progress, threads);
      }
      std::fflush(stdout);
    } catch (const StopRequest&) {
      is_stopped = true;
      context.reason =
          fmt::format("stopped by {}; {}", signal_name(context.signals->first()),
                      invocation.encode.encoded ? "run the same command again to continue" : "nothing is written");
    }
  });
  return world.all_true(!is_stopped) ? ExitStatus::done : ExitStatus::stopped;
}

ExitStatus data_info(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  on_rank_0(world, [&] {
    DataRequest request = invocation.run.data;
    const bool verifies = request.lists_problems;
    if (verifies) request.verification = Verification::sample;
    if (verifies) request.data_file_check = DataFileCheck::all;
    const OwnedData data = open_noted(invocation.run, request, world);
    const DatasetInfo& info = data.pair.train->info();
    std::string text =
        fmt::format("{:<10} {}\n", "name", printable(info.name)) + set_line("training", *data.pair.train);
    text += data.pair.test ? set_line("test", *data.pair.test) : fmt::format("{:<10} none\n", "test");
    if (verifies) text += fmt::format("{:<10} {}\n", "verified", verified_text(data.pair));
    text += fmt::format("{:<10} {}\n", "mean", statistic_text(info.statistics.mean));
    text += fmt::format("{:<10} {}\n", "deviation", statistic_text(info.statistics.deviation));
    fmt::print("{}{}", text, classes_text(data.pair));
    if (!verifies) return;
    const std::vector<std::string> problems = problems_of(data.pair);
    for (const std::string& problem : problems) fmt::print("{:<10} {}\n", "problem", printable(problem));
    std::fflush(stdout);
    const bool can_train = data.pair.empty_classes.empty() && (problems.empty() || invocation.run.data.skip_bad_images);
    if (can_train) return;
    throw Error(ErrorSource::input,
                fmt::format("{} in {}, listed above: mend or remove them; data convert and training with "
                            "--skip-bad-images leave bad files out",
                            plural(problems.size(), "problem"), invocation.run.data.train));
  });
  return ExitStatus::done;
}

ExitStatus data_show(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  on_rank_0(world, [&] {
    if (invocation.show.step > 0 && invocation.show.epoch > 1) {
      throw Error(ErrorSource::usage, "--step counts the steps of all epochs: leave out --epoch");
    }
    const OwnedData owned = open_noted(invocation.run, invocation.run.data, world);
    const Dataset& data = *owned.pair.train;
    const DatasetInfo& info = data.info();
    refuse_unshowable(invocation.target, info);
    const LoaderPlan plan = plan_of(invocation.run, data);
    const Shape& image = plan.recipe.image;
    const ShownStep shown = prepare(data, plan, invocation.show);
    const std::size_t count = std::min(static_cast<std::size_t>(invocation.show.count), shown.samples.size());
    SampleBatch originals;
    data.read(std::span(shown.samples).first(count), originals);
    std::vector<SheetEntry> entries;
    for (std::size_t i = 0; i < count; ++i) {
      entries.push_back({.image = {shown.pixels[i].data(), image},
                         .original = invocation.show.beside ? std::optional(originals.images[i]) : std::nullopt});
    }
    const ContactSheet sheet = make_contact_sheet(entries);
    write_atomically(invocation.target, sheet.png);
    fmt::print("{}: {} of the {} images of step {} (epoch {}) of {}, {} x {}{}{}\n", invocation.target, count,
               shown.samples.size(), shown.step, shown.epoch, printable(info.name), image[1], image[2],
               sheet.enlargement > 1 ? fmt::format(" enlarged {} times", sheet.enlargement) : "",
               is_normalized(plan.recipe) ? "; normalized values of -3 to 3 from black to white" : "");
    const auto class_names = shown_class_names(info);
    fmt::print("row column     sample  label\n");
    for (std::size_t i = 0; i < count; ++i) {
      const auto columns = static_cast<std::size_t>(sheet.columns);
      fmt::print("{:>3} {:>6} {:>10}  {}\n", i / columns + 1, i % columns + 1, shown.samples[i],
                 printable(class_names[static_cast<std::size_t>(originals.labels[i])]));
    }
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

}  // namespace tutti
