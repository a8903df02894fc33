#include "checkpoint_choice.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <ranges>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string fault_of(const std::string& path) {
  try {
    static_cast<void>(load_checkpoint(path));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// First files of checkpoints that a resume has marked bad, or whose saving has not come to its end.
std::vector<JudgedCheckpoint> untried(const std::string& folder) {
  std::vector<JudgedCheckpoint> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    fs::path first = entry.path();
    const bool bad = first.extension() == ".bad";
    if (bad) first.replace_extension();
    if (first.extension() != ".h5" || first.stem().has_extension()) continue;
    if (bad) found.push_back({entry.path(), "a resume has found it damaged"});
    if (!bad && !fs::exists(fs::path(first).replace_extension(".json"))) {
      found.push_back({entry.path(), "it has no manifest: it is being saved, or that was cut short"});
    }
  }
  std::ranges::sort(found, std::greater(), &JudgedCheckpoint::path);
  return found;
}

CheckpointStore store_in(const std::string& folder) {
  return CheckpointStore(is_folder(folder + "/checkpoints") ? folder + "/checkpoints" : folder);
}

Error no_checkpoints_in(const std::string& folder) {
  return {ErrorSource::checkpoint,
          fmt::format("'{}' holds no checkpoints: give a run's folder, or a checkpoint (.h5)", folder)};
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

std::vector<JudgedCheckpoint> judge_checkpoints(const std::string& folder) {
  const CheckpointStore store = store_in(folder);
  std::vector<JudgedCheckpoint> judged;
  for (const std::int64_t step : std::views::reverse(store.steps())) {
    const std::string path = store.path_of(step);
    judged.push_back({path, fault_of(path)});
  }
  std::ranges::move(untried(store.folder()), std::back_inserter(judged));
  return judged;
}

const std::string& newest_good(const std::vector<JudgedCheckpoint>& judged, const std::string& folder) {
  const auto good = std::ranges::find(judged, std::string(), &JudgedCheckpoint::fault);
  if (good != judged.end()) return good->path;
  if (judged.empty()) throw no_checkpoints_in(folder);
  throw Error(ErrorSource::checkpoint, fmt::format("no checkpoint in '{}' is good", folder));
}

std::string word_of_caution(const std::string& path) {
  return fmt::format(
      "'{}' has no manifest beside it: it was read through HDF5, and nothing but its own digests vouches "
      "for it",
      path);
}

void refuse_missing(const std::string& path) {
  std::error_code unknown;
  if (fs::exists(path, unknown)) return;
  throw Error(ErrorSource::checkpoint,
              fmt::format("there is no '{}': give a folder that a training had as --out, or a checkpoint (.h5)", path));
}

LoadedCheckpoint load_named_checkpoint(World& world, const std::string& path, const Log& log) {
  run_agreed(world, [&] {
    if (world.rank() == 0) refuse_missing(path);
  });
  if (world.agree(world.rank() != 0 || is_folder(path))) {
    auto newest = store_in(path).newest(world, log, Damaged::left);
    if (!newest) throw no_checkpoints_in(path).on_all_ranks();
    log.note(fmt::format("the newest good checkpoint of {} is {}", path, newest->path));
    return std::move(*newest);
  }
  LoadedCheckpoint loaded = load_checkpoint(world, path);
  if (world.rank() == 0 && !loaded.verified) log.warn(word_of_caution(loaded.path));
  return loaded;
}

void refuse_other_data(const LoadedCheckpoint& resumed, const std::string& data, std::uint64_t digest) {
  if (resumed.state.data_digest == digest) return;
  throw Error(ErrorSource::input,
              fmt::format("--data {} has digest {}, but the checkpoint {} was trained on digest {}: give the data of "
                          "the run",
                          data, digest_text(digest), resumed.path, digest_text(resumed.state.data_digest)))
      .on_all_ranks();
}

}  // namespace tutti
