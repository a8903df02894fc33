"""Writes a run's report: one page that contains everything it shows, loads nothing from the network and runs no script.
Its sections are in the order in which they are read."""

from __future__ import annotations

import collections
import pathlib
import shlex

from tutti import program
from tutti.program import plural
from tutti.report import charts, markup
from tutti.report.markup import Html, count, decimal, element, percent, seconds, short, table
from tutti.run_folder import Run, figure, whole, words

MOST_EVENTS = 200
CHOSEN_BY_MACHINE = ("parts = ", "threads = ")  # where the user does not; each start shows them
MOST_COLUMNS = 100  # of the chart of epochs
FIRST_KNOWN_EPOCH = 3  # whose training images the network has seen several times
LARGE_GAP = 0.25  # between the accuracies of training and test set
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # browsers enforce it
CONTENTS = {"curves": "Learning curves", "classes": "Classes", "mistakes": "Mistakes", "time": "Time",
            "events": "Events", "configuration": "Configuration"}
# The useful shares come first, at the foot of the columns.
SHARES = {"compute": ("s1", "forward, backward and optimizer step"),
          "data": ("s0", "waiting for input batches"),
          "evaluation": ("s4", "evaluation on the test set"),
          "checkpoint": ("s5", "copying the state for a checkpoint"),
          "communication": ("s2", "gradient exchange that compute did not hide"),
          "waiting": ("s3", "waiting for other ranks"),
          "other": ("s6", "everything else")}


def page(run: Run, scores: list[Html], defaults: set[str]) -> str:
    """`scores` are the sections about a data set's images, `defaults` the lines of config.toml with default values."""
    head = element("head", markup.opening("meta", charset="utf-8"),
                   markup.opening("meta", http_equiv="Content-Security-Policy", content=POLICY),
                   markup.opening("meta", name="viewport", content="width=device-width"),
                   markup.opening("meta", name="color-scheme", content="light dark"),
                   markup.opening("link", rel="icon", href="data:,"),
                   element("title", headline(run)),
                   element("style", Html(pathlib.Path(__file__).with_name("page.css").read_text(encoding="utf-8"))))
    contents = [element("a", name, href=f"#{key}") for key, name in CONTENTS.items()]
    footer = element("footer", f"Written by {program.name()} report from {run.folder}; last record: {date(run)}.")
    main = element("main", heading(run), element("nav", *contents), curves(run), *scores, times(run), events(run),
                   configuration(run, defaults), footer)
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


def date(run: Run) -> str:
    return run.changed.strftime("%Y-%m-%d %H:%M")


def fact(record: dict, name: str) -> str:
    return words(record[name]) if name in record else ""


def last_fact(run: Run, name: str) -> str:
    return fact(run.starts[-1], name) if run.starts else ""


# --- Heading.


def headline(run: Run) -> str:
    model, data = (_short_name(last_fact(run, name)) or f"unknown {name}" for name in ("model", "data"))
    if not run.epochs:
        return f"{model} on {data}: no epoch has ended yet"
    shown = run.shown
    if not shown:
        return f"{model} on {data}: at step {run.chosen_step} of {run.last_step}"
    when = f"after {plural(shown['epoch'], 'epoch')}"
    if shown is not run.epochs[-1]:
        when += f" of {run.epochs[-1]['epoch']}"
    elif run.under_way:
        when += " so far"
    for name, which, more in (("test_acc", "test", ""), ("train_acc", "training", ", not tested")):
        accuracy = figure(shown, name)
        if accuracy is not None:
            return f"{model} on {data}: {percent(accuracy)} {which} accuracy {when}{more}"
    return f"{model} on {data}: unknown accuracy {when}"


def _short_name(name: str) -> str:
    """The last component of a path; any other name unchanged."""
    return name.rpartition("/")[2] or name


def heading(run: Run) -> Html:
    look, state = _state(run)
    return element("header", element("p", str(run.folder), class_="folder"),
                   element("h1", headline(run).replace(" %", "\u00a0%")),
                   element("p", element("span", state, class_=f"standing {look}")),
                   element("p", _conditions(run), class_="conditions"), *_tiles(run))


def _state(run: Run) -> tuple[str, str]:
    steps = plural(run.last_step, "step")
    if run.under_way:
        return "going", f"under way, {steps} done"
    if run.end is not None:
        status = fact(run.end, "status")
        return "stopped" if status == "75" else "failed", \
            f"ended with status {status} after {steps}: {fact(run.end, 'reason')}"
    if run.ended_early:
        return "stopped", run.state()
    return "done", f"done after {steps}"


def _conditions(run: Run) -> str:
    ranks = [plural(fact(start, "ranks"), "rank") for start in run.starts if "ranks" in start]
    changes = [each for place, each in enumerate(ranks) if place == 0 or each != ranks[place - 1]]
    batch, parts = run.options.get("batch-size"), plural(last_fact(run, "parts"), "part")
    exchange, parameters = last_fact(run, "exchange"), last_fact(run, "parameters")
    facts = [", then ".join(changes), f"batch {batch} in {parts}" if batch else "",
             words(run.options.get("precision", "")), words(run.options.get("optimizer", "")),
             exchange and f"exchange {exchange}", parameters and f"{parameters} parameters", date(run)]
    return " · ".join(each for each in facts if each)


def _tiles(run: Run) -> list[Html]:
    if not run.epochs:
        return []
    shown = run.shown
    tested = [epoch for epoch in run.epochs if figure(epoch, "test_acc") is not None]
    best = max(tested, key=lambda epoch: (figure(epoch, "test_acc"), epoch is shown), default=shown)
    took = sum(figure(epoch, "seconds") or 0 for epoch in run.epochs)
    tiles = []
    for name, value, look, more in (
            ("test accuracy", figure(shown, "test_acc"), percent, ""),
            ("best test accuracy", None if best is shown else figure(best, "test_acc"), percent,
             f"epoch {best.get('epoch')}"),
            ("train accuracy", figure(shown, "train_acc"), percent, ""),
            ("test loss", figure(shown, "test_loss"), decimal, ""),
            ("train loss", figure(shown, "train_loss"), decimal, ""),
            ("training time", took, seconds, plural(len({one["epoch"] for one in run.epochs}), "epoch")),
            ("speed", figure(shown, "images_per_second"), count, "images/s")):
        if value is not None:
            tiles.append(_tile(name, element("b", look(value)), *([element("small", more)] if more else [])))
    if fact(shown, "digest"):
        tiles.append(_tile("weights", element("code", fact(shown, "digest"))))
    return [element("dl", *tiles, class_="tiles")]


def _tile(name: str, *value: Html) -> Html:
    return element("div", element("dt", name), element("dd", *value))


# --- Learning curves.


def curves(run: Run) -> Html:
    loss, accuracy = ([_line(run, "train, by steps", "train thin", run.stretches, f"train_{key}", has_marks=False),
                       _line(run, "train", "train", run.epochs, f"train_{key}"),
                       _line(run, "test", "test", run.epochs, f"test_{key}")] for key in ("loss", "acc"))
    lr = [_line(run, "lr", "rate", run.epochs, "lr")]
    speed = [_line(run, "images/s", "speed", run.epochs, "images_per_second")]
    drawn = [_chart(run, "Loss", "mean cross-entropy", loss, _loss_axis, value_text=decimal),
             _chart(run, "Accuracy", "correctly classified images", accuracy, _share_axis,
                    lambda share: f"{short(100 * share)} %", percent),
             _chart(run, "Learning rate", "in the epoch's last step", lr,
                    _loss_axis if run.options.get("schedule") == "step" else _axis_with_zero),
             _chart(run, "Speed", "training images per second", speed, _axis_with_zero, count, count)]
    content = [element("div", *drawn, class_="charts")]
    if run.epochs:
        content += _overfitting(run.shown)
        content.append(markup.folded("All epochs", _table_of_epochs(run)))
    return markup.section("curves", "Learning curves", *content)


def _overfitting(epoch: dict) -> list[Html]:
    """Training warns only once, and only if the test loss is no better than guessing."""
    train, test = figure(epoch, "train_acc"), figure(epoch, "test_acc")
    if train is None or test is None or epoch["epoch"] < FIRST_KNOWN_EPOCH or train - test <= LARGE_GAP:
        return []
    return [element("p", f"In epoch {epoch['epoch']}, the training accuracy is {percent(train)}, and the test accuracy "
                         f"{percent(test)}: the network is overfitting. Use more images, other --augment steps, or "
                         "--init-from the weights of another run.")]


def _line(run: Run, name: str, look: str, records: list[dict], key: str, has_marks: bool = True) -> charts.Line:
    points = [(run.epochs_at(one["step"]), figure(one, key)) for one in records if figure(one, key) is not None]
    return charts.Line(name, look, points, has_marks)


def _chart(run: Run, title: str, unit: str, lines: list[charts.Line], y_axis, y_text=short, value_text=short) -> Html:
    return charts.LineChart(title, unit, "epoch" if run.epochs else "step",
                            max(1e-9, 1.02 * run.epochs_at(run.last_step)), lines,
                            [run.epochs_at(resume.step) for resume in run.resumes], y_axis, y_text, value_text).draw()


def _axis_with_zero(low: float, high: float) -> charts.Axis:
    return charts.linear_axis(min(0.0, low), high)


def _loss_axis(low: float, high: float) -> charts.Axis:
    """Logarithmic where the smallest values would otherwise be indistinguishable from 0."""
    return charts.logarithmic_axis(low, high) if 0 < 15 * low < high else _axis_with_zero(low, high)


def _share_axis(low: float, high: float) -> charts.Axis:
    axis = charts.linear_axis(min(low, high - 0.001), high)  # all may be 1
    axis.high = min(axis.high, max(1.0, high))
    return axis


def _table_of_epochs(run: Run) -> Html:
    rows = []
    for one in run.epochs:
        lr = figure(one, "lr")
        rows.append([count(one["epoch"]), count(one["step"]),
                     *(decimal(figure(one, key)) for key in ("train_loss", "train_acc", "test_loss", "test_acc")),
                     decimal(figure(one, "seconds"), 1), decimal(figure(one, "images_per_second"), 0),
                     "-" if lr is None else short(lr), fact(one, "digest")])
    return table(["epoch", "step", "train loss", "train acc", "test loss", "test acc", "seconds", "images/s", "lr",
                  "weights"], rows)


# --- Where the time went.


def times(run: Run) -> Html:
    title = "Where the time went"
    if not run.times:
        return markup.section("time", title, markup.absence("There are no time records."))
    all_epochs, by_epoch, by_rank = _shares({}), collections.defaultdict(lambda: _shares({})), []
    for one in run.times:
        ranks = one["ranks"] if isinstance(one.get("ranks"), list) else []
        by_rank += [_shares({}) for _ in ranks[len(by_rank):]]
        for sums, shares in [(all_epochs, one), (by_epoch[one["epoch"]], one), *zip(by_rank, ranks)]:
            for name, value in _shares(shares).items():
                sums[name] += value
    drawn = [_chart_of_epochs(by_epoch)]
    if len(by_rank) > 1:
        columns = [(str(rank), list(shares.values())) for rank, shares in enumerate(by_rank)]
        drawn.append(_column_chart("By rank, in total", "rank", columns))
    total = sum(all_epochs.values())
    rows = [[name, seconds(value), percent(value / total if total > 0 else 0), SHARES[name][1]]
            for name, value in all_epochs.items()]
    return markup.section("time", title, element("div", *drawn, class_="charts"),
                          table(["", "mean over the ranks", "share", "meaning"], rows), *_stragglers(run))


def _shares(record: object) -> dict[str, float]:
    known = record if isinstance(record, dict) else {}
    return {name: max(0.0, figure(known, name) or 0) for name in SHARES}


def _column_chart(title: str, x_name: str, columns: list[tuple[str, list[float]]]) -> Html:
    pieces = [(name, look) for name, (look, _) in SHARES.items()]
    return charts.ColumnChart(title, "s", x_name, pieces, columns).draw()


def _chart_of_epochs(by_epoch: dict[int, dict[str, float]]) -> Html:
    """With many epochs, each column is the mean of a few."""
    epochs = sorted(by_epoch)
    together = -(-len(epochs) // MOST_COLUMNS)
    columns = []
    for first in range(0, len(epochs), together):
        group = [by_epoch[epoch] for epoch in epochs[first:first + together]]
        columns.append((str(epochs[first]), [sum(one[name] for one in group) / len(group) for name in SHARES]))
    return _column_chart("By epoch" + (f", means of {together} epochs" if together > 1 else ""), "epoch", columns)


def _stragglers(run: Run) -> list[Html]:
    hosts: dict[int, str] = {}
    waits: dict[int, list[tuple[float, str]]] = collections.defaultdict(list)  # seconds and cause
    epochs: dict[int, set[int]] = collections.defaultdict(set)  # one may have several records
    for one in run.times:
        if isinstance(worst := one.get("worst"), dict):
            hosts[whole(worst, "rank")] = fact(worst, "host")
            epochs[whole(worst, "rank")].add(one["epoch"])
            waits[whole(worst, "rank")].append((figure(worst, "seconds") or 0, fact(worst, "phase")))
    if not waits:
        return [element("p", "No rank waited for another: there is one rank.")]
    rows = []
    for rank, each in sorted(waits.items(), key=lambda item: (-sum(wait for wait, _ in item[1]), item[0])):
        causes = sorted({cause for _, cause in each})
        cause = max(causes, key=lambda cause: sum(wait for wait, of in each if of == cause))
        rows.append([f"{rank} on {hosts[rank]}", seconds(sum(wait for wait, _ in each)), str(len(epochs[rank])),
                     cause])
    return [element("h3", "Stragglers"),
            table(["rank", "the others waited for it", "epochs in which it was the slowest", "main cause"], rows)]


# --- Events.


def events(run: Run) -> Html:
    found = _all_events(run)
    left_out = []
    if len(found) > MOST_EVENTS + 1:
        more = f"{len(found) - 1 - MOST_EVENTS} more events are left out"
        left_out = [element("tr", element("td", ""), element("td", more, colspan="2"))]
        found = found[:MOST_EVENTS] + found[-1:]
    rows = [element("tr", element("td", count(step)), element("td", what), element("td", details),
                    class_="bad" if is_bad else "") for step, what, details, is_bad in found]
    head = element("tr", *(element("th", name) for name in ("step", "what", "details")))
    listed = element("table", element("thead", head), element("tbody", *rows[:-1], *left_out, rows[-1]), class_="list")
    content = [element("div", listed, class_="wide")]
    if run.damaged:
        lines = plural(len(run.damaged), "damaged line")
        content.append(element("p", f"{lines} of metrics.jsonl {'was' if len(run.damaged) == 1 else 'were'} skipped."))
    return markup.section("events", "Events", *content, element("h3", "Checkpoints"), *_checkpoints(run))


def _all_events(run: Run) -> list[tuple[int, str, str, bool]]:
    found = []
    for place, (step, start) in enumerate(_starts(run)):
        ranks = plural(fact(start, "ranks"), "rank") if "ranks" in start else "ranks unknown"
        found.append((step, "resumed" if place else "started", f"{ranks}, {fact(start, 'device')}", False))
        if fact(start, "rehearse"):
            found.append((step, "injected fault", fact(start, "rehearse"), False))
    found += [(one["step"], "checkpoint failed", fact(one, "failure"), True)
              for one in run.checkpoints if fact(one, "failure")]
    for one in run.incidents:
        if one["event"] == "skipped":
            found.append((one["step"], "step skipped",
                          f"{fact(one, 'tensor')} was not finite at rank {fact(one, 'rank')}", True))
        elif one["event"] == "audit":
            whose = "one of ranks" if one.get("decided") is False else "rank"
            found.append((one["step"], "wrong result", f"{whose} {_listed(one, 'ranks')} in part {fact(one, 'part')}, "
                          f"{fact(one, 'pass')} pass of {fact(one, 'layer')}; the run ended", True))
        else:
            then = f"all ranks went back to step {fact(one, 'equal_after')}" \
                if one.get("heals") is True else "the run ended"
            found.append((one["step"], "replicas diverged",
                          f"rank {_listed(one, 'ranks')} in {_listed(one, 'tensors')}; {then}", True))
    found.sort(key=lambda event: event[0])
    if run.under_way:
        return [*found, (run.last_step, "under way", "when this page was written", False)]
    if run.failed_start is not None:
        found.append((run.last_step, "ended", "", False))
        return [*found, (run.last_step, "start failed", f"{fact(run.failed_start, 'reason')} (status "
                         f"{fact(run.failed_start, 'status')})", True)]
    if run.end is None:
        return [*found, (run.last_step, "ended", "", False)]
    status, reason, rank, host = (fact(run.end, name) for name in ("status", "reason", "rank", "host"))
    return [*found, (run.last_step, f"ended with status {status}", f"{reason} (rank {rank} on {host})", status != "75")]


def _starts(run: Run) -> list[tuple[int, dict]]:
    """Each start comes with the number of steps that were done before it."""
    return [(0, start) for start in run.starts[:1]] + [(resume.step, resume.record) for resume in run.resumes]


def _listed(record: dict, name: str) -> str:
    value = record.get(name)
    return ", ".join(map(words, value)) if isinstance(value, list) else fact(record, name)


def _checkpoints(run: Run) -> list[Html]:
    if not run.checkpoints:
        return [markup.absence("No checkpoint was saved.")]
    rows = [[count(one["step"]), fact(one, "file"),
             *("-" if figure(one, key) is None else look(figure(one, key))
               for key, look in (("bytes", markup.size), ("seconds", seconds), ("stall_seconds", seconds))),
             "failed" if fact(one, "failure") else "saved"] for one in run.checkpoints]
    good = sum(row[-1] == "saved" for row in rows)
    stall = sum(figure(one, "stall_seconds") or 0 for one in run.checkpoints)
    return [element("p", f"{plural(good, 'checkpoint')} saved in the background; training paused for {seconds(stall)} "
                         "in total."),
            markup.folded("All checkpoints",
                          table(["step", "file", "size", "time", "training paused", "result"], rows))]


# --- Configuration.


def configuration(run: Run, defaults: set[str]) -> Html:
    """Shows a column for the start and one for each resume, then the options and exit.json."""
    starts = _starts(run)
    if starts:
        names = dict.fromkeys(name for _, start in starts for name in start
                              if name not in ("event", "step", "configuration", "unix_time", "hash"))
        head = ["", *(f"resumed at step {step}" if place else "start" for place, (step, _) in enumerate(starts))]
        rows = [[name.replace("_", " "), *(_fact_text(start, name) for _, start in starts)] for name in names]
        content = [element("div", table(head, rows), class_="facts")]
    else:
        content = [markup.absence("metrics.jsonl has no run record.")]
    if not run.options_text:
        content.append(markup.absence("The folder has no config.toml, so the options are unknown."))
    else:
        chosen = [line for line in run.options_text.splitlines(keepends=True)
                  if line.rstrip("\n") not in defaults and not line.startswith(CHOSEN_BY_MACHINE)]
        content += [element("h3", "Non-default options"), element("pre", *chosen)] if chosen else \
            [element("p", "All options have their default values.")]
        content.append(markup.folded("All options (config.toml)", element("pre", run.options_text)))
    if run.end is not None:
        rows = [[name, _fact_text(run.end, name)] for name in run.end]
        content += [element("h3", "exit.json"), element("div", table(["", ""], rows), class_="facts")]
    return markup.section("configuration", "Configuration", *content)


def _fact_text(record: dict, name: str) -> str:
    if name == "command_line" and isinstance(record.get(name), list):
        return " ".join(shlex.quote(words(word)) for word in record[name])
    return fact(record, name)
