"""How a checkpoint's network classifies a data set, from `trainer eval --json`: the confusion matrix, recall and
precision of each class, and the most confident mistakes."""

from __future__ import annotations

import base64
import dataclasses
import pathlib

from tutti.program import plural
from tutti.report import markup
from tutti.report.markup import Html, count, element, percent

MATRIX_CLASSES = 24  # more could not be read
TABLE_CLASSES = 1000
SETS = {"train": "training ", "test": "test ", "all": ""}
DARK = 0.6  # darker shades need light letters


@dataclasses.dataclass
class Class:
    name: str
    images: int
    correct: int
    predicted: int = 0  # images of any class

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.images if self.images else None

    @property
    def mistakes(self) -> int:
        return self.images + self.predicted - 2 * self.correct


class Evaluation:
    def __init__(self, json: dict, pictures: pathlib.Path | None):
        self.checkpoint = pathlib.PurePath(json["checkpoint"]).name
        self.json = json
        self.classes = [Class(one["class"], one["images"], one["correct"]) for one in json["classes"]]
        entries = json["confusion_entries"] if "confusion_entries" in json else \
            [(label, predicted, images) for label, row in enumerate(json["confusion"])
             for predicted, images in enumerate(row) if images]
        self.rows: list[dict[int, int]] = [{} for _ in self.classes]
        for label, predicted, images in entries:
            self.rows[label][predicted] = images
            self.classes[predicted].predicted += images
        self.pictures = None if pictures is None else \
            [base64.b64encode((pictures / one["picture"]).read_bytes()).decode() for one in json["mistakes"]]


def sections(scores: Evaluation | str) -> list[Html]:
    """The sections show an evaluation, or the reason why there is none."""
    titles = ("classes", "Per-class results"), ("mistakes", "Most confident mistakes")
    contents = [[markup.absence(f"Not available: {scores}.")]] * 2 if isinstance(scores, str) else \
        [_classes(scores), _mistakes(scores)]
    return [markup.section(*title, *content) for title, content in zip(titles, contents)]


def _classes(scores: Evaluation) -> list[Html]:
    json, every = scores.json, range(len(scores.classes))
    shown = sorted(sorted(every, key=lambda label: -scores.classes[label].mistakes)[:MATRIX_CLASSES])
    content = [element("p", f"{count(json['images'])} {SETS[json['set']]}images of {json['data']}, classified by "
                            f"{scores.checkpoint} (step {count(json['step'])}): {percent(json['accuracy'])} correct, "
                            f"mean loss {json['loss']:.4f}.")]
    if len(shown) < len(every):
        words = f"The matrix shows the {len(shown)} of {len(every)} classes with the most mistakes."
        content.append(element("p", words))
    content += [_matrix(scores, shown), element("h3", "Classes, the lowest recall first")]
    if len(every) > TABLE_CLASSES:
        content.append(element("p", f"The first {TABLE_CLASSES} of {len(every)}."))
    return [*content, _table(scores)]


def _matrix(scores: Evaluation, shown: list[int]) -> Html:
    others = ["others"] if len(shown) < len(scores.classes) else []
    names = [element("th", element("span", name), scope="col")
             for name in [scores.classes[label].name for label in shown] + others]
    rows = []
    for label in shown:
        row, images = scores.rows[label], scores.classes[label].images
        cells = [_cell(row.get(predicted, 0), images, label == predicted) for predicted in shown]
        if others:
            cells.append(_cell(images - sum(row.get(predicted, 0) for predicted in shown), images, False))
        rows.append(element("tr", element("th", scores.classes[label].name, scope="row"), *cells))
    head = element("tr", element("th", "true \\ predicted", class_="corner"), *names)
    return element("div", element("table", element("thead", head), element("tbody", *rows), class_="matrix"),
                   class_="wide")


def _cell(images: int, of: int, is_right: bool) -> Html:
    """The shade shows the share of the row's images; mistakes, which are rare, get a steeper scale."""
    if not images:
        return element("td", "·", class_="zero")
    share = images / of
    shade = 0.15 + 0.75 * share if is_right else 0.12 + 0.78 * share**0.5
    look = ("right" if is_right else "wrong") + (" dark" if shade > DARK else "")
    return element("td", count(images), class_=look, style=f"--shade:{shade:.2f}", title=percent(share))


def _table(scores: Evaluation) -> Html:
    """Classes without images come last."""
    order = sorted(range(len(scores.classes)),
                   key=lambda label: 2 if scores.classes[label].accuracy is None else scores.classes[label].accuracy)
    head = ("class", "images", "recall", "", "precision", "most often mistaken for")
    rows = [_row(scores, label) for label in order[:TABLE_CLASSES]]
    return element("div", element("table", element("thead", element("tr", *(element("th", name) for name in head))),
                                  element("tbody", *rows), class_="classes"), class_="wide")


def _row(scores: Evaluation, label: int) -> Html:
    one = scores.classes[label]
    wrong = {predicted: images for predicted, images in sorted(scores.rows[label].items()) if predicted != label}
    most = max(wrong, key=wrong.__getitem__, default=None)
    bar = element("span", element("i", style=f"width:{100 * (one.accuracy or 0):.1f}%"), class_="bar")
    return element("tr", element("th", one.name, scope="row"), element("td", count(one.images)),
                   element("td", "-" if one.accuracy is None else percent(one.accuracy)), element("td", bar),
                   element("td", percent(one.correct / one.predicted) if one.predicted else "-"),
                   element("td", "-" if most is None else f"{scores.classes[most].name} ({wrong[most]})"))


def _mistakes(scores: Evaluation) -> list[Html]:
    if scores.pictures is None:
        return [markup.absence("Images were left out (--no-images).")]
    wrong = scores.json["images"] - sum(one.correct for one in scores.classes)
    if not wrong:
        return [element("p", "All images are correctly classified.")]
    pictures = [_picture(*each) for each in zip(scores.json["mistakes"], scores.pictures)]
    words = f"The {len(pictures)} most confident of {count(wrong)} mistakes." if len(pictures) < wrong else \
        f"All {plural(wrong, 'mistake')}, the most confident first."
    return [element("p", words), element("div", *pictures, class_="gallery")]


def _picture(mistake: dict, png: str) -> Html:
    label, predicted = mistake["label"], mistake["predicted"]
    image = markup.opening("img", src=f"data:image/png;base64,{png}", alt=f"{label}, predicted as {predicted}",
                           width="96")
    return element("figure", image, element(
        "figcaption", "true: ", element("b", label), ", predicted: ", element("b", predicted, class_="bad"),
        element("small", f"{predicted} {percent(mistake['probability'])}, {label} "
                         f"{percent(mistake['probability_of_label'])}; image {mistake['image']}")))
