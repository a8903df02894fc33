#include "../several.hpp"
#include "figure_text.hpp"
#include "sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace tutti {
namespace {

constexpr std::size_t kMostClasses = 24;      // in the matrix; there they can be read
constexpr std::size_t kMostClassRows = 1000;  // in the table
constexpr double kDark = 0.6;                 // a shade that wants light letters

using Labels = std::vector<std::size_t>;

// The images of one class, and those taken for it.
struct ClassFigures {
  std::int64_t images = 0;
  std::int64_t right = 0;
  std::int64_t taken_for_it = 0;

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(images); }
  double precision() const { return static_cast<double>(right) / static_cast<double>(taken_for_it); }
  std::int64_t mistakes() const { return images - right + taken_for_it - right; }
};

std::vector<ClassFigures> figures_of(const Confusion& confusion) {
  std::vector<ClassFigures> figures(confusion.classes());
  for (std::size_t label = 0; label < figures.size(); ++label) {
    figures[label].right = confusion.count(label, label);
    for (const auto& [predicted, images] : confusion.row(label)) {
      figures[label].images += images;
      figures[predicted].taken_for_it += images;
    }
  }
  return figures;
}

Labels all_labels(std::size_t classes) {
  Labels labels(classes);
  std::iota(labels.begin(), labels.end(), std::size_t{0});
  return labels;
}

std::string origin_of(const ScoredSet& scored) {
  return fmt::format("{} {} images of {}, named by {} (step {})", count_text(scored.sums.samples),
                     scored.set == "train" ? "training" : "test", scored.data, scored.checkpoint,
                     count_text(scored.step));
}

// Those with the most mistakes where there are too many, in order of their numbers.
Labels shown_classes(const std::vector<ClassFigures>& figures) {
  Labels labels = all_labels(figures.size());
  if (labels.size() <= kMostClasses) return labels;
  std::ranges::stable_sort(labels, std::greater(), [&](std::size_t label) { return figures[label].mistakes(); });
  labels.resize(kMostClasses);
  std::ranges::sort(labels);
  return labels;
}

// Shaded by the share of the row's images; mistakes are rare, and shaded so that they can be seen all the same.
Html cell_of(std::int64_t count, std::int64_t images, bool is_right) {
  if (count == 0) return element("td", {{"class", "zero"}}, "·");
  const double share = static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(images, 1));
  const double shade = is_right ? 0.15 + 0.75 * share : 0.12 + 0.78 * std::sqrt(share);
  const std::string look = fmt::format("{}{}", is_right ? "right" : "wrong", shade > kDark ? " dark" : "");
  return element("td",
                 {{"class", look}, {"style", fmt::format("--shade:{:.2f}", shade)}, {"title", percent_text(share)}},
                 count_text(count));
}

Html column_names(const Confusion& confusion, const Labels& labels, bool has_others) {
  Html names = element("th", {{"class", "corner"}}, "is \\ taken for");
  for (const std::size_t label : labels) {
    names += element("th", {{"scope", "col"}}, element("span", confusion.name(label)));
  }
  if (has_others) names += element("th", {{"scope", "col"}}, element("span", "others"));
  return element("thead", element("tr", names));
}

Html matrix_of(const Confusion& confusion, const std::vector<ClassFigures>& figures, const Labels& labels) {
  const bool has_others = labels.size() < figures.size();
  Html rows;
  for (const std::size_t label : labels) {
    const std::int64_t images = figures[label].images;
    std::int64_t others = images;
    Html row = element("th", {{"scope", "row"}}, confusion.name(label));
    for (const std::size_t predicted : labels) {
      const std::int64_t count = confusion.count(label, predicted);
      others -= count;
      row += cell_of(count, images, label == predicted);
    }
    if (has_others) row += cell_of(others, images, false);
    rows += element("tr", row);
  }
  return element(
      "div", {{"class", "wide"}},
      element("table", {{"class", "matrix"}}, column_names(confusion, labels, has_others) + element("tbody", rows)));
}

Html bar_of(double share) {
  return element("span", {{"class", "bar"}},
                 element("i", {{"style", fmt::format("width:{:.1f}%", 100 * share)}}, Html()));
}

std::string most_taken_for(const Confusion& confusion, std::size_t label) {
  const std::vector<std::size_t> others = confusion.mistaken_for(label);
  if (others.empty()) return "-";
  return fmt::format("{} ({})", confusion.name(others[0]), confusion.count(label, others[0]));
}

Html class_row(const Confusion& confusion, std::size_t label, const ClassFigures& figures) {
  const bool has_images = figures.images > 0;
  return element("tr", element("th", {{"scope", "row"}}, confusion.name(label)) +
                           element("td", count_text(figures.images)) +
                           element("td", has_images ? percent_text(figures.accuracy()) : "-") +
                           element("td", bar_of(has_images ? figures.accuracy() : 0)) +
                           element("td", figures.taken_for_it > 0 ? percent_text(figures.precision()) : "-") +
                           element("td", most_taken_for(confusion, label)));
}

// The worst first.
Html table_of_classes(const Confusion& confusion, const std::vector<ClassFigures>& figures) {
  Labels labels = all_labels(figures.size());
  std::ranges::stable_sort(labels, {}, [&](std::size_t label) {
    constexpr double kBehindAll = 2;
    return figures[label].images > 0 ? figures[label].accuracy() : kBehindAll;
  });
  Html head;
  for (const char* name : {"class", "images", "named rightly", "", "right of those taken for it", "most taken for"}) {
    head += element("th", name);
  }
  Html rows;
  for (std::size_t i = 0; i < std::min(labels.size(), kMostClassRows); ++i) {
    rows += class_row(confusion, labels[i], figures[labels[i]]);
  }
  return element(
      "div", {{"class", "wide"}},
      element("table", {{"class", "classes"}}, element("thead", element("tr", head)) + element("tbody", rows)));
}

Html picture_of(const ScoredSet& scored, const MistakePicture& picture) {
  const Mistake& mistake = picture.mistake;
  const std::string label = scored.confusion.name(mistake.label);
  const std::string predicted = scored.confusion.name(mistake.predicted);
  const Html image = open_element(
      "img", {{"src", picture.address}, {"alt", fmt::format("{}, taken for {}", label, predicted)}, {"width", "96"}});
  const Html words =
      element("b", label) + text(" taken for ") + element("b", {{"class", "bad"}}, predicted) +
      element("small", fmt::format("sure by {}; of the truth by {}; image {}", percent_text(mistake.probability),
                                   percent_text(mistake.probability_of_label), mistake.sample));
  return element("figure", image + element("figcaption", words));
}

}  // namespace

Html classes_of(const ScoresOrReason& scores) {
  const char* const title = "How it names each class";
  if (const auto* reason = std::get_if<std::string>(&scores)) return section_of("classes", title, absence(*reason));
  const auto& scored = std::get<ScoredSet>(scores);
  const std::vector<ClassFigures> figures = figures_of(scored.confusion);
  const Labels labels = shown_classes(figures);
  Html content = paragraph(fmt::format("{}: {} rightly, mean loss {:.4f}.", origin_of(scored),
                                       percent_text(scored.sums.accuracy()), scored.sums.mean_loss()));
  if (labels.size() < figures.size()) {
    content += paragraph(
        fmt::format("The matrix shows the {} of {} classes that are confused most.", labels.size(), figures.size()));
  }
  content += matrix_of(scored.confusion, figures, labels) + element("h3", "Class by class, the worst first");
  if (figures.size() > kMostClassRows) {
    content += paragraph(fmt::format("The {} worst of {}.", kMostClassRows, figures.size()));
  }
  return section_of("classes", title, content + table_of_classes(scored.confusion, figures));
}

Html pictures_of(const ScoresOrReason& scores) {
  const char* const title = "Where it is most sure, and wrong";
  if (const auto* reason = std::get_if<std::string>(&scores)) return section_of("mistakes", title, absence(*reason));
  const auto& scored = std::get<ScoredSet>(scores);
  if (!scored.has_pictures) return section_of("mistakes", title, absence("Images were left out (--no-images)."));
  const std::int64_t wrong = scored.sums.samples - scored.sums.correct;
  if (wrong == 0) return section_of("mistakes", title, paragraph("It names every image rightly."));
  Html gallery;
  for (const MistakePicture& picture : scored.pictures) gallery += picture_of(scored, picture);
  const std::string told =
      std::ssize(scored.pictures) < wrong
          ? fmt::format("The {} of {} mistakes that it is surest of.", scored.pictures.size(), count_text(wrong))
          : fmt::format("All {}, the surest first.", several(wrong, "mistake"));
  return section_of("mistakes", title, paragraph(told) + element("div", {{"class", "gallery"}}, gallery));
}

}  // namespace tutti
