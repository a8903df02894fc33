"""Draws trainings and measurements that are written here, and checks the figures and pages of tools/plot."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOOLS), str(TOOLS / "companions")]

from plotting import allreduce, bench_file, command_line, learning, scaling, sheet, time_shares
from plotting.errors import PlotError
from tutti import run_folder
from tutti.program import Failure

START = {"event": "run", "command_line": ["trainer", "--out", "a<b"], "ranks": 4, "model": "lenet",
         "data": "/data/glyphs", "exchange": "exact"}


def epoch(number, loss=0.5, test=0.9):
    return {"event": "epoch", "epoch": number, "step": 100 * number, "train_loss": loss, "train_acc": 0.8,
            "test_loss": test and 0.4, "test_acc": test, "seconds": 2.0, "images_per_second": 1000.0, "lr": 0.1,
            "digest": "00ff"}


def stretch(step, loss=1.0):
    return {"event": "step", "step": step, "train_loss": loss, "train_acc": 0.5, "lr": 0.1}


def checkpoint(step, **more):
    return {"event": "checkpoint", "step": step, "file": "f", "bytes": 1, "seconds": 0.1, "stall_seconds": 0.0} | more


def point(ranks, mode="weak", exchange="ring", efficiency=1.0, **more):
    seconds = 0.1 / efficiency
    batch = 64 * (ranks if mode == "weak" else 1)
    return {"mode": mode, "exchange": exchange, "nodes": 1, "ranks": ranks, "batch": batch,
            "step_seconds_median": seconds, "step_seconds_low_quartile": seconds * 0.9,
            "step_seconds_high_quartile": seconds * 1.25, "images_per_second": 640 * ranks * efficiency,
            "efficiency": efficiency, "oversubscribed": ranks > 2,
            "time": {"input": 0.01, "compute": 0.08, "imbalance": 0, "exchange": seconds - 0.1, "update": 0.01}} | more


def forecast(ranks, exchange="ring", mode="weak"):
    return {"mode": mode, "exchange": exchange, "nodes": ranks, "ranks": ranks, "step_seconds": 0.125,
            "efficiency": 0.8, "efficiency_low": 0.7, "efficiency_high": 0.9, "label": "forecast"}


def sums(ranks, size, algorithm, **more):
    return {"ranks": ranks, "hosts": 1, "bytes": size, "algorithm": algorithm, "seconds_median": 1e-3,
            "seconds_low_quartile": 9e-4, "seconds_high_quartile": 2e-3, "gigabytes_per_second": 1.0,
            "bus_gigabytes_per_second": 1.5, "wrong": 0} | more


def filled(panel):
    return [one for one in panel.collections if type(one).__name__ in ("PolyCollection", "FillBetweenPolyCollection")]


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(sheet.pyplot.close, "all")
        self.root = pathlib.Path(folder.name)

    def run_of(self, *records, name="run", tail=""):
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        lines = "".join(json.dumps(one) + "\n" for one in records)
        (folder / "metrics.jsonl").write_text(lines + tail, encoding="utf-8")
        return folder

    def file_of(self, bench, results, name="figures.json", **more):
        path = self.root / name
        path.write_text(json.dumps({"bench": bench, "results": results, "model": "lenet", "data": "glyphs"} | more),
                        encoding="utf-8")
        return path

    def drawn(self, kind, results, **more):
        bench = "allreduce" if kind is allreduce else "scaling"
        return kind.draw([bench_file.read(self.file_of(bench, results, **more), bench)])

    def plot(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command_line.main([str(word) for word in words])
        return status, out.getvalue(), err.getvalue()

    def heading(self, drawing):
        return " ".join(text.get_text() for text in drawing.figure.texts).replace("\n", " ")


class RunFolder(Plot):
    def test_keeps_the_last_record_of_each_event_and_step(self):
        run = run_folder.read(self.run_of(START, stretch(50), epoch(1, 0.9), epoch(2), START, epoch(1, 0.7)))
        self.assertEqual([0.7, 0.5], [one["train_loss"] for one in run.epochs])
        self.assertEqual([50], [one["step"] for one in run.stretches])

    def test_finds_the_checkpoint_that_a_resume_began_at(self):
        run = run_folder.read(self.run_of(
            START, checkpoint(50), checkpoint(60, failure="full"), checkpoint(90), epoch(1),
            START | {"ranks": 3}, stretch(70), epoch(1), checkpoint(150), START, epoch(2)))
        self.assertEqual([(50, 3), (150, 4)], [(one.step, one.record["ranks"]) for one in run.resumes])

    def test_leaves_a_half_written_last_line_to_the_next_reading(self):
        for tail in ('{"event":"epoch","ep', "12", '"even'):
            self.assertEqual(1, len(run_folder.read(self.run_of(START, epoch(1), tail=tail)).epochs))

    def test_skips_lines_that_are_not_records(self):
        status, out, err = self.plot("run", self.run_of(START, epoch(1), tail='nonsense\n{}\n{"ev'), "--formats", "svg")
        self.assertEqual(0, status)
        self.assertRegex(err, r"metrics.jsonl: skipped 2 damaged lines, the first is line 3\n$")

    def test_reports_the_remedy_for_a_folder_without_records(self):
        with self.assertRaisesRegex(Failure, r"holds no metrics.jsonl: .*--out"):
            run_folder.read(self.root)
        with self.assertRaisesRegex(Failure, "holds no record yet: wait"):
            run_folder.read(self.run_of())

    def test_places_steps_between_epochs_also_in_one_cut_short(self):
        run = run_folder.read(self.run_of(START, epoch(1), epoch(2), epoch(3) | {"step": 220}))
        self.assertEqual([0.5, 1, 1.5, 2.9, 3], [run.epochs_at(step) for step in (50, 100, 150, 210, 220)])

    def test_reports_how_the_run_ended(self):
        folder = self.run_of(START, epoch(1))
        self.assertEqual("ended after 100 steps", run_folder.read(folder).state())
        (folder / "config.toml").write_text("epochs = 5\n", encoding="utf-8")
        self.assertEqual("ended in epoch 2 of 5 without giving a reason", run_folder.read(folder).state())
        (folder / "exit.json").write_text('{"status": 75, "reason": "SIGUSR1 at rank 2"}', encoding="utf-8")
        self.assertEqual("ended with status 75 after 100 steps: SIGUSR1 at rank 2", run_folder.read(folder).state())


class Learning(Plot):
    def draw(self, *folders):
        return learning.draw([run_folder.read(folder) for folder in folders])

    def test_shows_loss_accuracy_and_speed_over_epochs(self):
        drawing = self.draw(self.run_of(START, stretch(50), epoch(1), checkpoint(100), checkpoint(150, failure="x"),
                                        START | {"ranks": 3}, epoch(2)))
        loss, accuracy, speed = drawing.panels[0]
        self.assertEqual(["Loss", "Accuracy", "Speed"], [one.get_title(loc="left") for one in drawing.panels[0]])
        self.assertEqual(["mean cross-entropy", "share of correct labels", "images/s"],
                         [one.get_ylabel() for one in drawing.panels[0]])
        self.assertEqual("epoch", loss.get_xlabel())
        self.assertEqual([[1, 2], [1, 2], [0.5], [1, 1]], [list(line.get_xdata()) for line in accuracy.get_lines()])
        self.assertEqual([1000, 1000], list(speed.get_lines()[0].get_ydata()))
        self.assertEqual(["train (mean of the epoch)", "test", "train (means over steps)", "resumed", "checkpoint",
                          "checkpoint failed"], drawing.labels)
        for words in ("lenet trained on glyphs", "4 ranks, then 3 ranks", "exchange exact"):
            self.assertIn(words, self.heading(drawing))

    def test_without_a_test_set_shows_training_with_a_note(self):
        drawing = self.draw(self.run_of(START, epoch(1, test=None)))
        self.assertEqual(["train (mean of the epoch)"], drawing.labels)
        self.assertIn("no test set", self.heading(drawing))

    def test_shows_steps_before_the_first_epoch_has_ended(self):
        drawing = self.draw(self.run_of(START, stretch(10), stretch(20)))
        self.assertEqual("step", drawing.panels[0][0].get_xlabel())
        self.assertEqual("no epoch has ended yet", drawing.panels[0][2].texts[0].get_text())

    def test_gives_each_of_multiple_runs_its_colour_and_name(self):
        drawing = self.draw(self.run_of(START, epoch(1), name="a"),
                            self.run_of(START | {"ranks": 1}, epoch(1), name="b"),
                            self.run_of(START, stretch(10), name="c"))
        self.assertEqual(["a (4 ranks)", "b (1 rank)", "c (4 ranks, no epoch yet)"], drawing.labels[:3])
        self.assertEqual([sheet.colour(0), sheet.colour(1)],
                         [line.get_color() for line in drawing.panels[0][2].get_lines()])

    def test_draws_a_run_that_an_equal_one_would_hide_as_a_band(self):
        drawing = self.draw(self.run_of(START, epoch(1), epoch(2), name="a"),
                            self.run_of(START, epoch(1), START | {"ranks": 3}, epoch(2), name="b"))
        below, _, above, *_ = drawing.panels[0][0].get_lines()
        self.assertEqual(list(below.get_ydata()), list(above.get_ydata()))
        self.assertGreater(below.get_linewidth(), 2 * above.get_linewidth())
        self.assertEqual(["a (4 ranks)", "b (4 ranks, then 3 ranks)"], drawing.labels[:2])
        self.assertIn("equal weights at the end: ", self.heading(drawing))

    def test_names_the_weights_of_runs_that_differ(self):
        runs = [self.run_of(START, epoch(1) | {"digest": name * 16}, name=name) for name in "ab"]
        self.assertIn(f"weights at the end: a {'a' * 16}, b {'b' * 16}", self.heading(self.draw(*runs)))

    def test_is_logarithmic_only_where_losses_span_magnitudes(self):
        self.assertEqual("linear", self.draw(self.run_of(START, epoch(1, 0.5))).panels[0][0].get_yscale())
        self.assertEqual("log", self.draw(self.run_of(START, epoch(1, 0.5), epoch(2, 0.001))).panels[0][0].get_yscale())


class Follow(Plot):
    def test_draws_again_until_the_run_unlocks_its_folder(self):
        folder = self.run_of()
        page = folder / "learning.html"
        pages = []
        lock = (folder / "lock").open("wb")
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack(run_folder.FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        todo = [lambda: self.run_of(START, epoch(1)), lambda: self.run_of(START, epoch(1), tail='{"ev'),
                lambda: self.run_of(START, epoch(1), epoch(2)), lock.close]

        def sleep(seconds):
            self.assertEqual(7, seconds)
            pages.append(page.read_text(encoding="utf-8") if page.exists() else "")
            todo.pop(0)()

        with mock.patch.object(command_line.time, "sleep", sleep):
            status, out, err = self.plot("run", folder, "--follow", "--every", "7", "--formats", "html")
        self.assertEqual((0, [], 1, 1), (status, todo, out.count("learning.html"), err.count("waiting for the run")))
        self.assertEqual([False, True, True, True], ['http-equiv="refresh" content="7"' in one for one in pages])
        self.assertEqual(pages[1], pages[2])
        self.assertIn("under way, 200 steps done", pages[3])
        self.assertNotIn("refresh", page.read_text(encoding="utf-8"))
        self.assertIn("run: ended after 200 steps", out)


class Scaling(Plot):
    def test_shows_points_quartiles_ideal_and_forecast(self):
        drawing = self.drawn(scaling, [point(1), point(2, efficiency=0.9), point(4, efficiency=0.5),
                                       point(2, exchange="exact")],
                             precision="fp32", rounds=5, paced=True, forecast={
                                 "points": [forecast(8), forecast(4), forecast(16)],
                                 "stops_paying": [{"mode": "weak", "exchange": "ring", "ranks": 16}]})
        speed_up, efficiency = drawing.panels[:, 0]
        self.assertEqual(["ring", "exact", "oversubscribed: more ranks than cores",
                          "forecast: another node stops paying", "forecast",
                          "forecast: band of error", "ideal"], drawing.labels)
        self.assertEqual(("log", "log", "linear"),
                         (speed_up.get_xscale(), speed_up.get_yscale(), efficiency.get_yscale()))
        self.assertIn([1, 1.8, 2], [list(line.get_ydata()) for line in speed_up.get_lines()])
        self.assertIn([4, 8, 16], [list(line.get_xdata()) for line in efficiency.get_lines()])
        open_ones = [line.get_xdata()[0] for line in efficiency.get_lines() if line.get_markerfacecolor() == "white"]
        self.assertEqual([4], open_ones)
        self.assertEqual([1, 1], [len(filled(panel)) for panel in (speed_up, efficiency)])
        band = filled(efficiency)[0].get_paths()[0].vertices
        self.assertEqual((0.7, 0.9), (band[:, 1].min(), band[:, 1].max()))
        bars = efficiency.containers[0].lines[2][0].get_segments()[0]  # a fourth slower at the high quartile
        self.assertAlmostEqual(0.8, bars[0][1])
        self.assertAlmostEqual(1 / 0.9, bars[1][1])
        for words in ("Scaling of lenet on glyphs", "fp32", "batch 64 a rank (weak)", "1 to 4 ranks of 1 node",
                      "5 rounds", "compute slept through"):
            self.assertIn(words, self.heading(drawing))

    def test_draws_one_point_or_a_forecast_alone(self):
        self.assertEqual(["ring", "ideal"], self.drawn(scaling, [point(1)]).labels)
        alone = self.drawn(scaling, [], forecast={"points": [forecast(2), forecast(4, mode="strong")]})
        self.assertEqual(["forecast", "forecast: band of error", "ideal"], alone.labels)
        self.assertEqual(2, alone.panels.shape[1])

    def test_leaves_the_scale_to_lines_when_a_band_is_very_wide(self):
        wide = forecast(4) | {"efficiency_high": 9.0}
        drawing = self.drawn(scaling, [], forecast={"points": [forecast(2), wide]})
        self.assertEqual(1.08, drawing.panels[1][0].get_ylim()[1])

    def test_names_the_files_if_there_are_multiple(self):
        files = [bench_file.read(self.file_of("scaling", [point(1), point(2)], name=name), "scaling")
                 for name in ("before.json", "after.json")]
        self.assertEqual(["before: ring", "after: ring", "ideal"], scaling.draw(files).labels)

    def test_joins_the_points_that_use_the_fewest_nodes(self):
        drawing = self.drawn(scaling, [point(1), point(2, nodes=2, efficiency=0.5), point(2, efficiency=0.8)])
        lines = [list(line.get_ydata()) for line in drawing.panels[1][0].get_lines()]
        self.assertIn([1, 0.8], lines)
        self.assertIn([0.5], lines)


class TimeShares(Plot):
    def test_stacks_to_the_inverse_of_the_efficiency(self):
        drawing = self.drawn(time_shares, [point(1), point(4, efficiency=0.5), point(2, mode="strong")])
        strong, weak = drawing.panels[0]
        self.assertEqual(["Strong, ring", "Weak, ring"], [one.get_title(loc="left") for one in (strong, weak)])
        tops = [max(bars[place].get_y() + bars[place].get_height() for bars in weak.containers) for place in (0, 1)]
        self.assertEqual([1.0, 2.0], [round(top, 9) for top in tops])
        self.assertEqual(["1", "4*"], [one.get_text() for one in weak.get_xticklabels()])
        self.assertIn("* oversubscribed: more ranks than cores", drawing.labels)

    def test_refuses_points_without_times(self):
        with self.assertRaisesRegex(PlotError, r"figures.json has no times of the phases.*measure again"):
            self.drawn(time_shares, [point(1), point(2, time=None)])


class AllReduce(Plot):
    def test_has_a_line_for_each_algorithm_and_a_panel_for_each_rank_count(self):
        drawing = self.drawn(allreduce, [sums(ranks, size, name) for ranks in (4, 2) for size in (4096, 4, 1 << 20)
                                         for name in ("mpi", "ring", "new one")],
                             choices=[{"ranks": 2, "up_to_bytes": 64, "algorithm": "ring"},
                                      {"ranks": 2, "up_to_bytes": None, "algorithm": "mpi"}])
        self.assertEqual(["2 ranks", "4 ranks"], [one.get_title(loc="left") for one in drawing.panels[0]])
        self.assertEqual(["ring", "mpi (the library's own)", "new one",
                          "strip on top, in these colours: chosen by training"], drawing.labels)
        self.assertEqual([4, 4096, 1 << 20], list(drawing.panels[0][0].get_lines()[0].get_xdata()))
        self.assertEqual([3, 3, 3, 3], [len(panel.get_lines()) for panel in drawing.panels.flat])
        self.assertEqual([2, 0], [len(panel.patches) for panel in drawing.panels[0]])

    def test_crosses_out_sums_that_were_wrong(self):
        drawing = self.drawn(allreduce, [sums(2, 4, "ring"), sums(2, 16, "ring", wrong=3)])
        crosses = [line for line in drawing.panels[0][0].get_lines() if line.get_marker() == "x"]
        self.assertEqual([[16]], [list(line.get_xdata()) for line in crosses])
        self.assertIn("the sum was WRONG", drawing.labels)

    def test_wraps_many_rank_counts_and_draws_a_single_size(self):
        drawing = self.drawn(allreduce, [sums(ranks, 1 << 22, "ring") for ranks in range(2, 8)])
        self.assertEqual((4, 4), drawing.panels.shape)
        drawing.render("png", 50)


class Files(Plot):
    def test_are_written_next_to_the_input_or_into_a_given_folder(self):
        run, bench = self.run_of(START, epoch(1)), self.file_of("scaling", [point(1)], name="scaling.json")
        out = self.root / "new/folder"
        for words, stem in ((("run", run), run / "learning"), (("scaling", bench), self.root / "scaling"),
                            (("time", bench, "--out", out), out / "scaling-time")):
            status, output, err = self.plot(*words)
            self.assertEqual((0, ""), (status, err))
            self.assertEqual([f"{stem}.{form}" for form in command_line.FORMATS], output.split())
            self.assertTrue(pathlib.Path(f"{stem}.png").read_bytes().startswith(b"\x89PNG"))
            self.assertIn(b"<svg", pathlib.Path(f"{stem}.svg").read_bytes())
            self.assertFalse(list(stem.parent.glob(f".{stem.name}*")))

    def test_are_the_same_for_the_same_figures(self):
        run = self.run_of(START, epoch(1))
        self.plot("run", run, "--out", self.root / "a")
        self.plot("run", run, "--out", self.root / "b")
        for form in command_line.FORMATS:
            self.assertEqual(*((self.root / one / f"learning.{form}").read_bytes() for one in "ab"))

    def test_are_pages_that_need_nothing_else(self):
        run = self.run_of(START, epoch(1), START | {"ranks": 3}, epoch(2, test=None))
        (run / "config.toml").write_text('batch-size = 64\nlr-period = ""\n', encoding="utf-8")
        bench = self.file_of("scaling", [point(1), point(2)], libraries="MPI of <somewhere>",
                             forecast={"inputs": {"source": "by hand"}, "points": [forecast(4)]})
        sizes = self.file_of("allreduce", [sums(2, 4, "ring")], name="sums.json",
                             choices=[{"ranks": 2, "up_to_bytes": None, "algorithm": "ring"}])
        for words, page, facts in (
                (("run", run), run / "learning.html", ("a&lt;b", "resumed at step 0", "0.5000", "batch-size", "00ff")),
                (("scaling", bench), self.root / "figures-scaling.html", ("&lt;somewhere&gt;", "by hand", "forecast")),
                (("time", bench), self.root / "figures-time.html", ("ideal step", "imbalance")),
                (("allreduce", sizes), self.root / "sums-allreduce.html", ("any size", "bus GB/s"))):
            self.assertEqual(0, self.plot(*words)[0])
            text = page.read_text(encoding="utf-8")
            self.assertEqual({"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"},
                             set(re.findall(r'https?://[^"\s<]*', text)))
            for tag in ("<script", "<link", "<img", "src=", "<!DOCTYPE svg", "nan"):
                self.assertNotIn(tag, text)
            for fact in ("<svg", "<table>", *facts):
                self.assertIn(fact, text)

    def test_that_cannot_be_read_or_written_are_named_with_a_remedy(self):
        good = self.file_of("scaling", [point(1)])
        torn, list_of = self.root / "torn.json", self.root / "list.json"
        torn.write_text('{"bench": "sca', encoding="utf-8")
        list_of.write_text("[]", encoding="utf-8")
        lacking = point(1)
        del lacking["efficiency"]
        for words, message in (
                (("scaling", self.root / "none.json"), r"none.json: No such file.*bench scaling --json FILE"),
                (("scaling", torn), r"torn.json is no JSON.*whole"), (("time", list_of), r"list.json holds no bench"),
                (("allreduce", good), r"figures.json holds a bench scaling; give what `trainer bench allreduce"),
                (("scaling", self.file_of("scaling", [], name="a.json")), r"a.json holds no result.*Measure again"),
                (("scaling", self.file_of("scaling", [lacking], name="b.json")), r"b.json: point 1 lacks efficiency"),
                (("run", self.root), r"holds no metrics.jsonl"),
                (("scaling", good, "--out", good), r"figures-scaling.png: .*; choose a folder.*--out")):
            status, out, err = self.plot(*words)
            self.assertEqual((1, ""), (status, out))
            self.assertRegex(err, r"^tools/plot: .*" + message)

    def test_come_from_any_python(self):
        result = subprocess.run([TOOLS / "plot", "--help"], capture_output=True, text=True, check=False, timeout=60,
                                cwd=self.root)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("tools/plot run runs/a --follow", result.stdout)


if __name__ == "__main__":
    unittest.main()
