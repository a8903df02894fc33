#include "eval_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "commands.hpp"
#include "output.hpp"
#include "pictures.hpp"
#include "scoring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t kMaxColumns = 20;      // of a matrix on the terminal
constexpr std::size_t kMaxWrongClasses = 3;  // in the line of a class
constexpr std::int64_t kPictureSide = 160;   // pixels

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxMistakes = 24;

// Without --on, evaluates the test set, or all images of other data without one, but never the run's training set.
// Returns "train", "test", or "all" for other data without a test set.
std::string chosen_set(const Scoring& scoring, std::optional<EvalSet> on) {
  if (on == EvalSet::train) return "train";
  if (scoring.data().test) return "test";
  if (on != EvalSet::test && !scoring.is_of_run()) return "all";
  if (on == EvalSet::any) return "train";
  throw Error(ErrorSource::input,
              fmt::format("--data {} has no test set: give --test-data, or --on train to evaluate the training set",
                          scoring.config().data.train))
      .on_all_ranks();
}

Json class_json(const Confusion& confusion, std::size_t label) {
  const std::int64_t images = confusion.samples(label);
  const std::int64_t correct = confusion.count(label, label);
  Json json{{"class", confusion.names[label]}, {"images", images}, {"correct", correct}};
  json["accuracy"] = images == 0 ? Json() : Json(static_cast<double>(correct) / static_cast<double>(images));
  return json;
}

// The whole matrix, a row for each label; of more than 1000 classes the entries that are not zero: label, prediction,
// count.
std::string confusion_json(const Confusion& confusion) {
  constexpr std::size_t kMaxMatrixClasses = 1000;
  const std::size_t classes = confusion.names.size();
  const bool is_whole = classes <= kMaxMatrixClasses;
  std::vector<std::string> rows;
  for (std::size_t label = 0; label < classes; ++label) {
    std::vector<std::int64_t> counts(is_whole ? classes : 0);
    for (const auto& [predicted, images] : confusion.rows[label]) {
      if (is_whole) {
        counts[predicted] = images;
      } else {
        rows.push_back(fmt::format("    [{}, {}, {}]", label, predicted, images));
      }
    }
    if (is_whole) rows.push_back(fmt::format("    [{}]", fmt::join(counts, ", ")));
  }
  return fmt::format("  \"{}\": [\n{}\n  ]", is_whole ? "confusion" : "confusion_entries", fmt::join(rows, ",\n"));
}

// Puts each row of the matrix on its own line.
std::string json_text(Json json, const Confusion& confusion) {
  for (std::size_t label = 0; label < confusion.names.size(); ++label) {
    json["classes"].push_back(class_json(confusion, label));
  }
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.rfind("\n}"));
  return fmt::format("{},\n{}\n}}\n", text, confusion_json(confusion));
}

// The text as a part of a file's name: without separators, spaces and control characters, and at most `most` bytes.
std::string in_file_name(std::string text, std::size_t most) {
  if (!is_utf8(text)) text = printable(text);
  for (char& letter : text) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || (letter & '\x80') != 0 ||
                          std::string_view("._-+").find(letter) != std::string_view::npos;
    if (!is_plain) letter = '_';
  }
  if (text.size() > most) text.resize(most);
  while (!text.empty() && !is_utf8(text)) text.pop_back();  // cut within a character
  return text;
}

// "17-photos_cat_3.jpg-as-dog.png"; a sample without a file has its label instead.
std::string picture_name(const Mistake& mistake, const std::string& file, const Confusion& confusion) {
  const std::string label = confusion.names[mistake.label];
  return fmt::format("{}-{}-as-{}.png", mistake.sample, in_file_name(file.empty() ? label : file, 120),
                     in_file_name(confusion.names[mistake.predicted], 60));
}

constexpr const char* kPictureList = "mistakes.json";

// Makes the folder, or removes the pictures that an earlier evaluation listed there, and nothing else.
void prepare_pictures(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error(ErrorSource::save, fmt::format("cannot make '{}': {}", folder, failure.message()));
  const fs::path list = fs::path(folder) / kPictureList;
  if (!fs::exists(list, failure)) return;
  const Json earlier = Json::parse(read_file_text(list), nullptr, /*allow_exceptions=*/false);
  const auto is_listed = [](const Json& each) {
    return each.is_object() && each.contains("picture") && each["picture"].is_string();
  };
  if (!earlier.is_array() || !std::ranges::all_of(earlier, is_listed)) {
    throw Error(ErrorSource::usage, fmt::format("--mistakes {}: its file {} is not of an evaluation: choose another "
                                                "folder",
                                                folder, kPictureList));
  }
  for (const Json& each : earlier) {
    const fs::path name = each.at("picture").get<std::string>();
    if (name == name.filename() && name.extension() == ".png") fs::remove(fs::path(folder) / name, failure);
  }
}

// Writes the images of these mistakes into `folder`, with a list, in place of those of an earlier evaluation.
Json mistakes_json(const std::string& folder, const Dataset& data, const Confusion& confusion,
                   const std::vector<Mistake>& mistakes) {
  prepare_pictures(folder);
  Json list = Json::array();
  SampleBatch batch;
  for (const Mistake& mistake : mistakes) {
    const std::string file = data.file_of(mistake.sample);
    const std::string picture = picture_name(mistake, file, confusion);
    data.read(std::array{mistake.sample}, batch);
    write_atomically(fmt::format("{}/{}", folder, picture), small_png(batch.images.front(), kPictureSide));
    list.push_back({{"image", file.empty() ? Json(mistake.sample) : Json(file)},
                    {"label", confusion.names[mistake.label]},
                    {"predicted", confusion.names[mistake.predicted]},
                    {"probability", mistake.probability},
                    {"probability_of_label", mistake.probability_of_label},
                    {"picture", picture}});
  }
  const std::string text = list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  write_atomically(fmt::format("{}/{}", folder, kPictureList), std::as_bytes(std::span(text)));
  return list;
}

std::string shown_name(const Confusion& confusion, std::size_t label) { return printable(confusion.names[label]); }

std::string mistakes_text(const Confusion& confusion, std::size_t label) {
  std::vector<std::pair<std::size_t, std::int64_t>> others;
  for (const auto& entry : confusion.rows[label]) {
    if (entry.first != label) others.push_back(entry);
  }
  std::ranges::stable_sort(others, std::ranges::greater(), [](const auto& other) { return other.second; });
  others.resize(std::min(others.size(), kMaxWrongClasses));
  std::vector<std::string> words;
  for (const auto& [other, images] : others)
    words.push_back(fmt::format("{} {}", shown_name(confusion, other), images));
  return fmt::format("{}", fmt::join(words, ", "));
}

// The columns have class numbers as headings, which precede the names in the rows.
std::string matrix_text(const Confusion& confusion, std::size_t width) {
  const std::size_t classes = confusion.names.size();
  std::int64_t max_count = 0;
  for (const auto& row : confusion.rows) {
    for (const auto& [predicted, images] : row) max_count = std::max(max_count, images);
  }
  const std::size_t digits = std::max<std::size_t>(3, fmt::formatted_size("{}", max_count) + 1);
  constexpr std::string_view kCorner = "true, predicted";
  const std::size_t first = std::max(width + 4, kCorner.size());
  std::string text = fmt::format("{:<{}}", kCorner, first);
  for (std::size_t predicted = 0; predicted < classes; ++predicted) text += fmt::format("{:>{}}", predicted, digits);
  for (std::size_t label = 0; label < classes; ++label) {
    text += fmt::format("\n{:>2}  {:<{}}", label, shown_name(confusion, label), first - 4);
    for (std::size_t predicted = 0; predicted < classes; ++predicted) {
      text += fmt::format("{:>{}}", confusion.count(label, predicted), digits);
    }
  }
  return text + "\n";
}

}  // namespace

void Confusion::add(const ChunkScores& scores) {
  for (const SampleResult& score : scores.samples) {
    ++rows[static_cast<std::size_t>(score.label)][static_cast<std::size_t>(score.predicted)];
  }
}

std::int64_t Confusion::count(std::size_t label, std::size_t predicted) const {
  const auto found = rows[label].find(predicted);
  return found == rows[label].end() ? 0 : found->second;
}

std::int64_t Confusion::samples(std::size_t label) const {
  std::int64_t sum = 0;
  for (const auto& [predicted, images] : rows[label]) sum += images;
  return sum;
}

std::string Confusion::text() const {
  std::size_t width = 5;
  for (std::size_t label = 0; label < names.size(); ++label) width = std::max(width, shown_name(*this, label).size());
  std::string text = fmt::format("{:<{}} {:>7} {:>7}  mistaken for\n", "class", width, "images", "acc");
  for (std::size_t label = 0; label < names.size(); ++label) {
    const std::int64_t images = samples(label);
    const double accuracy = static_cast<double>(count(label, label)) / static_cast<double>(images);
    text += fmt::format("{:<{}} {:>7} {:>7}  {}\n", shown_name(*this, label), width, images,
                        images == 0 ? "-" : fmt::format("{:.4f}", accuracy), mistakes_text(*this, label));
  }
  return names.size() <= kMaxColumns ? text + "\n" + matrix_text(*this, width) : text;
}

void add_mistakes(std::vector<Mistake>& mistakes, const ChunkScores& scores, std::size_t max_count) {
  for (std::size_t i = 0; i < scores.samples.size(); ++i) {
    const SampleResult& score = scores.samples[i];
    if (score.label == score.predicted) continue;
    const auto label = static_cast<std::size_t>(score.label);
    const auto predicted = static_cast<std::size_t>(score.predicted);
    mistakes.push_back({.sample = scores.first + static_cast<std::int64_t>(i),
                        .label = label,
                        .predicted = predicted,
                        .probability = scores.probability(i, predicted),
                        .probability_of_label = scores.probability(i, label)});
  }
  std::ranges::sort(mistakes, {}, [](const Mistake& mistake) {
    return std::tuple(-mistake.probability, mistake.probability_of_label, mistake.sample);
  });
  mistakes.resize(std::min(mistakes.size(), max_count));
}

ExitStatus eval_command(World& world, const Invocation& invocation, CommandContext& context) {
  Scoring scoring(world, invocation, /*needs_labels=*/true, context);
  const EvalRequest& request = invocation.eval;
  const std::string set = chosen_set(scoring, request.on);
  const Dataset& data = set == "test" ? *scoring.data().test : *scoring.data().train;
  on_rank_0(world, [&] {
    const bool is_asked_for = set == "train" && scoring.is_of_run();
    const bool is_other = invocation.run.given.contains("data") || invocation.run.given.contains("test-data");
    const std::string trained = is_other && !is_asked_for ? known_images_text(scoring.checkpoint(), data) : "";
    if (!trained.empty()) Log(world.rank(), world.host(), invocation.run.output.quiet).warn(trained);
  });
  const bool by_class = request.classes || !request.mistakes.empty() || !invocation.json.empty();
  Confusion confusion(by_class ? shown_class_names(data.info()) : std::vector<std::string>{});
  std::vector<Mistake> mistakes;
  const auto receive = [&](const ChunkScores& scores) {
    confusion.add(scores);
    if (!request.mistakes.empty()) add_mistakes(mistakes, scores, kMaxMistakes);
  };
  const LossSums sums = scoring.evaluate(data, by_class ? Scoring::Receive(receive) : nullptr);
  on_rank_0(world, [&] {
    fmt::print("{}\n", evaluation_line(set, sums));
    if (request.classes) fmt::print("\n{}", confusion.text());
    std::fflush(stdout);
    Json json{{"checkpoint", scoring.checkpoint().path},
              {"verified", true},
              {"step", scoring.checkpoint().state.progress.step},
              {"data", scoring.config().data.train},
              {"set", set},
              {"loss", sums.mean_loss()},
              {"accuracy", sums.accuracy()},
              {"images", sums.samples}};
    if (!request.mistakes.empty()) json["mistakes"] = mistakes_json(request.mistakes, data, confusion, mistakes);
    if (invocation.json.empty()) return;
    const std::string text = json_text(std::move(json), confusion);
    write_atomically(invocation.json, std::as_bytes(std::span(text)));
  });
  return ExitStatus::done;
}

}  // namespace tutti
