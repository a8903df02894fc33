#include "checkpoint_choice.hpp"

#include "tutti/base/error.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "option_table.hpp"
#include "output.hpp"
#include "run_folder.hpp"
#include "state_dicts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <ranges>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string problem_of(const std::string& path) {
  try {
    static_cast<void>(load_checkpoint(path));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// The first files of checkpoints that a resume has marked as damaged, or whose save is incomplete.
std::vector<CheckedCheckpoint> skipped_checkpoints(const std::string& folder) {
  std::vector<CheckedCheckpoint> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    fs::path first = entry.path();
    const bool bad = first.extension() == ".bad";
    if (bad) first.replace_extension();
    if (first.extension() != ".h5" || first.stem().has_extension()) continue;
    if (bad) found.push_back({entry.path(), "a resume has found it damaged"});
    if (!bad && !fs::exists(fs::path(first).replace_extension(".json"))) {
      found.push_back({entry.path(), "it has no manifest: it is being saved, or the save was interrupted"});
    }
  }
  std::ranges::sort(found, std::greater(), &CheckedCheckpoint::path);
  return found;
}

CheckpointStore store_in(const std::string& folder) {
  return CheckpointStore(is_folder(checkpoints_folder(folder)) ? checkpoints_folder(folder) : folder);
}

// The best evaluation according to the newest good checkpoint; its step is -1 if there is none.
BestTest best_test(const CheckpointStore& store, const std::string& folder) {
  for (const std::int64_t step : std::views::reverse(store.steps())) {
    try {
      return load_checkpoint(store.path_of(step)).state.progress.best;
    } catch (const Error&) {
      continue;
    }
  }
  throw Error(ErrorSource::checkpoint, fmt::format("no checkpoint in '{}' is good", folder));
}

Error no_checkpoints_in(const std::string& folder) {
  return {ErrorSource::checkpoint,
          fmt::format("'{}' holds no checkpoints: give a run's folder, or a checkpoint (.h5)", folder)};
}

// State dicts of PyTorch and ONNX files have no seal either, but the remedy is another one.
void refuse_other_formats(const std::string& path) {
  const bool is_onnx = fs::path(path).extension() == ".onnx";
  if (!is_onnx && !is_state_dict(path)) return;
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("'{}' is {}, not a checkpoint: make one of it with {}{}", path,
                  is_onnx ? "an ONNX file" : "a state dict of PyTorch", conversion_command(path),
                  is_onnx ? "" : "; for weights of a network that a run here has, --like RUN instead of --names"));
}

}  // namespace

std::string checkpoint_path(const std::string& reference) {
  const std::size_t at = reference.rfind('@');
  if (at == std::string::npos || at == 0 || file_exists(reference)) return reference;
  const std::string folder = reference.substr(0, at);
  const std::string which = reference.substr(at + 1);
  const bool is_best = which == "best";
  constexpr std::size_t kMaxDigits = 18;
  const bool is_step =
      !which.empty() && which.size() <= kMaxDigits && which.find_first_not_of("0123456789") == std::string::npos;
  if (!is_best && !is_step) return reference;
  refuse_missing(folder);
  if (!is_folder(folder)) {
    throw Error(ErrorSource::checkpoint,
                fmt::format("'{}' is not the folder of a run: leave '@{}' out", folder, which));
  }
  const CheckpointStore store = store_in(folder);
  const std::vector<std::int64_t> steps = store.steps();
  if (steps.empty()) throw no_checkpoints_in(folder);
  const std::int64_t step = is_best ? best_test(store, folder).step : std::stoll(which);
  if (step < 0) {
    throw Error(ErrorSource::checkpoint,
                fmt::format("'{}' has no best checkpoint, since nothing was evaluated before the newest one was saved; "
                            "it has steps {}",
                            folder, fmt::join(steps, ", ")));
  }
  if (std::ranges::binary_search(steps, step)) return store.path_of(step);
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("'{}' has no checkpoint of step {}{}; it has steps {}", folder, step,
                  is_best ? ", the best evaluation, which --keep-best would have kept" : "", fmt::join(steps, ", ")));
}

std::vector<CheckedCheckpoint> check_checkpoints(const std::string& folder) {
  const CheckpointStore store = store_in(folder);
  std::vector<CheckedCheckpoint> checked;
  for (const std::int64_t step : std::views::reverse(store.steps())) {
    const std::string path = store.path_of(step);
    checked.push_back({path, problem_of(path)});
  }
  std::ranges::move(skipped_checkpoints(store.folder()), std::back_inserter(checked));
  return checked;
}

const std::string& newest_good(const std::vector<CheckedCheckpoint>& checked, const std::string& folder) {
  const auto good = std::ranges::find(checked, std::string(), &CheckedCheckpoint::problem);
  if (good != checked.end()) return good->path;
  if (checked.empty()) throw no_checkpoints_in(folder);
  throw Error(ErrorSource::checkpoint, fmt::format("no checkpoint in '{}' is good", folder));
}

void refuse_missing(const std::string& path) {
  if (file_exists(path)) return;
  throw Error(ErrorSource::checkpoint,
              fmt::format("there is no '{}': give a folder that a training had as --out, one of its checkpoints as "
                          "RUN@best or RUN@STEP, or a checkpoint (.h5)",
                          path));
}

LoadedCheckpoint load_named_checkpoint(World& world, const std::string& reference, const Log& log) {
  std::string path;
  on_rank_0(world, [&] {
    path = checkpoint_path(reference);
    refuse_missing(path);
    if (!is_folder(path)) refuse_other_formats(path);
  });
  path = broadcast_text(world, path, 0);
  if (world.all_true(world.rank() != 0 || is_folder(path))) {
    auto newest = store_in(path).newest(world, log, DamagedPolicy::ignore);
    if (!newest) throw no_checkpoints_in(path).on_all_ranks();
    log.info(fmt::format("the newest good checkpoint of {} is {}, after step {}", path, newest->path,
                         newest->state.progress.step));
    return std::move(*newest);
  }
  LoadedCheckpoint loaded = load_checkpoint(world, path);
  if (path != reference) log.info(fmt::format("{} is {}, after step {}", reference, path, loaded.state.progress.step));
  return loaded;
}

LoadedCheckpoint load_initial_weights(World& world, const std::string& reference, const Log& log) {
  std::string path = reference;
  on_rank_0(world, [&] {
    if (!is_state_dict(reference)) return;
    refuse_missing(reference);
    path = checkpoint_of_state_dict(reference, log);
  });
  LoadedCheckpoint loaded = load_named_checkpoint(world, broadcast_text(world, path, 0), log);
  if (is_state_dict(reference)) loaded.path = reference;  // for messages: the user's file, not that in the cache
  return loaded;
}

std::string better_checkpoint_text(const LoadedCheckpoint& loaded) {
  const fs::path folder = fs::path(loaded.path).parent_path();
  const CheckpointStore store(folder.string());
  const std::int64_t step = loaded.state.progress.step;
  try {
    const std::vector<std::int64_t> steps = store.steps();
    if (!std::ranges::binary_search(steps, step)) return {};
    const bool is_newest = steps.back() == step;
    const BestTest best = is_newest ? loaded.state.progress.best : best_test(store, folder.string());
    if (best.samples == 0 || best.step == step || !std::ranges::binary_search(steps, best.step)) return {};
    const fs::path run = folder.filename() == "checkpoints" ? folder.parent_path() : folder;
    return fmt::format(
        "the run's best evaluation was that after step {}, with test accuracy {:.4f}: {}@best has that "
        "checkpoint",
        best.step, best.accuracy(), run.empty() ? "." : run.string());
  } catch (const Error&) {  // of another checkpoint
    return {};
  }
}

NetworkSpec model_of(const LoadedCheckpoint& weights, RunConfig& config) {
  config.model = read_config_text(weights.state.configuration, weights.path).model;
  return parse_model(weights.state.model, "the model of " + weights.path);
}

}  // namespace tutti
