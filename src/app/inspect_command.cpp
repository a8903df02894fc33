#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/trained_on.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "checkpoint_choice.hpp"
#include "commands.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "state_dicts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kValuesPerLine = 8;
constexpr std::size_t kMaxNames = 12;  // of classes

struct TensorFigures {
  double min = 0;
  double max = 0;
  double norm = 0;
  std::uint64_t digest = 0;
};

TensorFigures figures_of(const NamedArray& tensor) {
  TensorFigures figures{.digest = digest(tensor.name, std::span<const float>(tensor.values))};
  if (tensor.values.empty()) return figures;
  const auto [min, max] = std::ranges::minmax(tensor.values);
  double squares = 0;
  for (const double value : tensor.values) squares += value * value;
  return {.min = min, .max = max, .norm = std::sqrt(squares), .digest = figures.digest};
}

Json tensor_json(const NamedArray& tensor, const TensorFigures& figures) {
  return {{"name", tensor.name},
          {"shape", tensor.shape.extents()},
          {"type", "f32"},
          {"least", figures.min},
          {"greatest", figures.max},
          {"norm", figures.norm},
          {"digest", digest_text(figures.digest)}};
}

std::string size_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < 0x1p20 ? fmt::format("{:.1f} KiB", size / 0x1p10) : fmt::format("{:.1f} MiB", size / 0x1p20);
}

// The functions print_... print and return the same as JSON.

template <class... Values>
void print_line(const char* name, fmt::format_string<Values...> text, Values&&... values) {
  fmt::print("  {:<14}{}\n", name, printable(fmt::format(text, std::forward<Values>(values)...)));
}

Json print_files(const std::vector<CheckpointFile>& files) {
  print_line("verified", "{}",
             files.empty() ? "its seal and its digests match; it has no manifest"
                           : "sizes, SHA-256 and digests match its manifest");
  Json json = Json::array();
  for (const auto& [name, bytes, sha256] : files) {
    print_line("", "{}, {} bytes, sha256 {}", name, bytes, sha256);
    json.push_back({{"file", name}, {"bytes", bytes}, {"sha256", sha256}});
  }
  return json;
}

std::string position_text(const TrainProgress& progress) {
  std::string text = fmt::format("{} done", progress.epoch);
  if (progress.step_in_epoch > 0) {
    text += fmt::format(", {} and {} samples of the next", plural(progress.step_in_epoch, "step"),
                        progress.samples_in_epoch);
  }
  if (progress.carried_over > 0) text += fmt::format(", {} samples carried over", progress.carried_over);
  return text;
}

Json print_progress(const TrainProgress& progress) {
  fmt::print("progress\n");
  print_line("step", "{} of {} planned", progress.step, progress.planned_steps);
  print_line("epochs", "{}", position_text(progress));
  if (const TrainSums& sums = progress.epoch_sums; sums.samples > 0) {
    print_line("epoch so far", "loss {:.4f}, acc {:.4f}, {} images in {:.1f} sec", sums.mean_loss(), sums.accuracy(),
               sums.samples, progress.epoch_seconds);
  }
  print_line("learning rate", "{}", progress.learning_rate);
  print_line("seed", "{}", progress.seed);
  print_line("parts", "{}", progress.parts);
  const BestTest& best = progress.best;
  if (best.step < 0) {
    print_line("best test", "none yet");
  } else {
    print_line("best test", "{} of {} correct ({:.4f}) after step {}", best.correct, best.samples, best.accuracy(),
               best.step);
  }
  return {{"step", progress.step},
          {"planned_steps", progress.planned_steps},
          {"epoch", progress.epoch},
          {"step_in_epoch", progress.step_in_epoch},
          {"samples_in_epoch", progress.samples_in_epoch},
          {"carried_over", progress.carried_over},
          {"learning_rate", progress.learning_rate},
          {"seed", progress.seed},
          {"parts", progress.parts},
          {"best", {{"step", best.step}, {"correct", best.correct}, {"samples", best.samples}}}};
}

std::string network_text(const std::string& model) {
  try {
    const NetworkSpec network = parse_model(model, "its model");
    return fmt::format("{}, {}", network.name, plural(std::ssize(network.layers), "layer"));
  } catch (const Error& error) {  // the rest can be inspected all the same
    return fmt::format("cannot be read: {}", error.what());
  }
}

Json print_run(const LoadedCheckpoint& loaded, const std::optional<TrainedOn>& data) {
  const TrainState& state = loaded.state;
  fmt::print("run\n");
  print_line("command line", "{}", state.command_line);
  const char* name = "options";
  for (const std::string& option : chosen_options(state.configuration)) {
    print_line(std::exchange(name, ""), "{}", option);
  }
  print_line("network", "{}", network_text(state.model));
  const bool is_of_state_dict = tutti::is_of_state_dict(loaded);
  print_line("data", "{}",
             is_of_state_dict ? "unknown: the weights are those of a state dict"
                              : fmt::format("digest {}", digest_text(state.data_digest)));
  if (data) {
    print_line("", "images of {}{}, {} classes", data->image.text(), is_of_state_dict ? " are assumed" : "",
               data->classes);
    const auto names = std::span(data->class_names).first(std::min(kMaxNames, data->class_names.size()));
    const bool has_more = names.size() < data->class_names.size();
    if (!names.empty()) print_line("", "{}{}", fmt::join(names, ", "), has_more ? " .." : "");
  }
  print_line("versions", "{}", state.versions);
  if (!state.choices.empty()) {
    print_line("algorithms", "{} chosen by measuring", std::ranges::count(state.choices, '\n'));
  }
  Json json{{"command_line", state.command_line},
            {"configuration", state.configuration},
            {"model", state.model},
            {"versions", state.versions},
            {"data_digest", digest_text(state.data_digest)}};
  if (data) json["data"] = Json::parse(state.data);
  return json;
}

Json print_group(const ArrayGroup& group, const std::vector<NamedArray>& tensors) {
  std::size_t widest = 0;
  std::int64_t elements = 0;
  std::uint64_t sum = 0;
  for (const NamedArray& tensor : tensors) widest = std::max(widest, printable(tensor.name).size());
  std::string text;
  Json json = Json::array();
  for (const NamedArray& tensor : tensors) {
    const TensorFigures figures = figures_of(tensor);
    text += fmt::format("  {:<{}}  {:<14} {:>10}  {:>11.4g} .. {:<11.4g} norm {:<10.4g} {}\n", printable(tensor.name),
                        widest, tensor.shape.text(), tensor.shape.elements(), figures.min, figures.max, figures.norm,
                        digest_text(figures.digest));
    elements += tensor.shape.elements();
    sum += figures.digest;
    json.push_back(tensor_json(tensor, figures));
  }
  if (tensors.empty()) {
    fmt::print("{}: none\n", group.name);
  } else {
    fmt::print("{}: {} tensors of {} f32 values, {}, digest {}\n{}", group.name, tensors.size(), elements,
               size_text(elements * std::int64_t{sizeof(float)}), digest_text(sum), text);
  }
  return json;
}

// Everything but the values.
Json print_checkpoint(const LoadedCheckpoint& loaded) {
  const std::vector<CheckpointFile> files = files_of(loaded.path);
  const std::optional<TrainedOn> data = trained_on(loaded);
  fmt::print("{}\n", loaded.path);
  Json json{{"checkpoint", loaded.path}, {"verified", true}};
  json["files"] = print_files(files);
  json["progress"] = print_progress(loaded.state.progress);
  json["run"] = print_run(loaded, data);
  for (const ArrayGroup& group : kArrayGroups) json[group.name] = print_group(group, loaded.state.*group.arrays);
  return json;
}

// Finds "parameters/conv1/weight", or the same without the group if the name is unique.
const NamedArray& find_tensor(const LoadedCheckpoint& loaded, const std::string& asked) {
  std::vector<const NamedArray*> found;
  std::vector<std::string> names;
  for (const ArrayGroup& group : kArrayGroups) {
    for (const NamedArray& tensor : loaded.state.*group.arrays) {
      const std::string name = fmt::format("{}/{}", group.name, tensor.name);
      if (asked != tensor.name && asked != name && asked != "/" + name) continue;
      found.push_back(&tensor);
      names.push_back(name);
    }
  }
  if (found.size() == 1) return *found.front();
  throw Error(
      ErrorSource::usage,
      found.empty()
          ? fmt::format("--tensor {}: '{}' has no tensor of that name; run inspect without --tensor to list all", asked,
                        loaded.path)
          : fmt::format("--tensor {}: '{}' has {}: give the full name", asked, loaded.path, fmt::join(names, " and ")));
}

// Prints the values row by row, each line after the index of its first value, with an empty line between matrices.
void print_values(const NamedArray& tensor) {
  const Shape& shape = tensor.shape;
  if (shape.elements() == 0) return;
  const std::int64_t row = shape.ndim() > 0 ? shape[shape.ndim() - 1] : 1;
  const std::int64_t matrix = shape.ndim() > 1 ? row * shape[shape.ndim() - 2] : row;
  const std::size_t width = index_text(shape, shape.elements() - 1).size();
  for (std::int64_t first = 0; first < shape.elements();) {
    const std::int64_t end = std::min(first + kValuesPerLine, (first / row + 1) * row);
    if (first > 0 && first % matrix == 0) fmt::print("\n");
    fmt::print("{:<{}}", index_text(shape, first), width);
    for (std::int64_t i = first; i < end; ++i) fmt::print(" {:>12.6g}", tensor.values[static_cast<std::size_t>(i)]);
    fmt::print("\n");
    first = end;
  }
}

Json print_tensor(const LoadedCheckpoint& loaded, const std::string& name) {
  const NamedArray& tensor = find_tensor(loaded, name);
  const TensorFigures figures = figures_of(tensor);
  fmt::print("{} of {}: {} f32, {:.6g} .. {:.6g}, norm {:.6g}, digest {}\n", printable(tensor.name), loaded.path,
             tensor.shape.text(), figures.min, figures.max, figures.norm, digest_text(figures.digest));
  print_values(tensor);
  Json json = tensor_json(tensor, figures);
  json["values"] = tensor.values;
  return {{"checkpoint", loaded.path}, {"verified", true}, {"tensor", std::move(json)}};
}

// Prints all checkpoints of a folder and returns the newest good one.
std::string survey(const std::string& folder, Json& json) {
  const std::vector<CheckedCheckpoint> checked = check_checkpoints(folder);
  for (const CheckedCheckpoint& checkpoint : checked) {
    const std::string name = std::filesystem::path(checkpoint.path).filename().string();
    fmt::print("{:<22}{}\n", name, checkpoint.problem.empty() ? "good" : "not good: " + printable(checkpoint.problem));
    json.push_back({{"path", checkpoint.path}, {"fault", checkpoint.problem}});
  }
  return newest_good(checked, folder);
}

Json inspect(const Invocation& invocation) {
  std::string path = checkpoint_path(invocation.checkpoint);
  refuse_missing(path);
  Json all = Json::array();
  if (is_folder(path)) {
    path = survey(path, all);
    fmt::print("\n");
  }
  if (!invocation.inspect.seal.empty()) {
    seal_checkpoint(path, invocation.inspect.seal);
    path = invocation.inspect.seal;
  }
  const LoadedCheckpoint loaded = load_checkpoint(path);
  const std::string& tensor = invocation.inspect.tensor;
  Json json = tensor.empty() ? print_checkpoint(loaded) : print_tensor(loaded, tensor);
  if (!all.empty()) json["folder"] = std::move(all);
  return json;
}

}  // namespace

ExitStatus inspect_command(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  Json json;
  on_rank_0(world, [&] {
    json = inspect(invocation);
    std::fflush(stdout);
  });
  write_json(world, invocation.json, json);
  return ExitStatus::done;
}

}  // namespace tutti
