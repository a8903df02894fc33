#include "report_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "../checkpoint_choice.hpp"
#include "../scoring.hpp"
#include "page.hpp"
#include "picture.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMostPictures = 24;
constexpr std::int64_t kMostPixels = 160;  // of a picture's side

// What the folder, or the data, may lack while there is much to be told all the same.
bool can_be_told(const Error& error, const World& world) {
  if (world.size() > 1 && error.reach() != ErrorReach::all_ranks) return false;
  switch (error.source()) {
    case ErrorSource::checkpoint:
    case ErrorSource::input:
    case ErrorSource::io:
    case ErrorSource::not_finite:
      return true;
    default:
      return false;
  }
}

std::vector<MistakePicture> pictures_of(const Dataset& data, const std::vector<Mistake>& mistakes) {
  std::vector<MistakePicture> pictures;
  SampleBatch batch;
  for (const Mistake& mistake : mistakes) {
    data.read(std::array{mistake.sample}, batch);
    pictures.push_back({mistake, data_address(thumbnail(batch.images.front(), kMostPixels))});
  }
  return pictures;
}

ScoredSet score(World& world, const Invocation& invocation, const EndRecord& record) {
  const ReportRequest& request = invocation.report;
  Scoring scoring(world, invocation, {.checkpoint = request.folder}, record);
  const bool has_test = scoring.data().test != nullptr;
  const Dataset& data = has_test ? *scoring.data().test : *scoring.data().train;
  Confusion confusion(told_class_names(data.info()));
  WorstMistakes worst(request.no_images ? 0 : kMostPictures);
  const LossSums sums = scoring.evaluate(data, [&](const ChunkScores& scores) {
    confusion.add(scores);
    worst.add(scores);
  });
  std::vector<MistakePicture> pictures;
  run_agreed(world, [&] {
    if (world.rank() == 0) pictures = pictures_of(data, worst.sorted());
  });
  return {.checkpoint = std::filesystem::path(scoring.checkpoint().path).filename().string(),
          .step = scoring.checkpoint().state.progress.step,
          .set = has_test ? "test" : "train",
          .data = scoring.config().data,
          .confusion = std::move(confusion),
          .sums = sums,
          .has_pictures = !request.no_images,
          .pictures = std::move(pictures)};
}

ScoresOrReason scores_or_reason(World& world, const Invocation& invocation, const EndRecord& record) {
  try {
    return score(world, invocation, record);
  } catch (const Error& error) {
    if (!can_be_told(error, world)) throw;
    return fmt::format("Not known here: {}.", error.what());
  }
}

}  // namespace

ExitStatus report_command(World& world, const Invocation& invocation, const EndRecord& record) {
  const ReportRequest& request = invocation.report;
  const std::string folder = run_folder_of(request.folder);
  const std::string path = request.output.empty() ? folder + "/report.html" : request.output;
  RunHistory history;
  run_agreed(world, [&] {
    if (world.rank() == 0) history = read_run_history(folder);
  });
  const ScoresOrReason scores = scores_or_reason(world, invocation, record);
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    const std::string page = report_page(history, scores);
    write_whole(path, std::as_bytes(std::span(page)));
    const auto* const scored = std::get_if<ScoredSet>(&scores);
    fmt::print("{}: {}, {:.0f} KiB{}\n", path, headline(history), static_cast<double>(page.size()) / 0x1p10,
               scored == nullptr ? "" : fmt::format(", images labelled by {}", scored->checkpoint));
    if (const auto* reason = std::get_if<std::string>(&scores)) {
      Log(world.rank(), world.host(), invocation.run.quiet).note("without classes and mistakes. " + *reason);
    }
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

}  // namespace tutti
