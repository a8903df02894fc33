"""trainer report: the page that it makes of run folders, of written ones and of the trainer's own."""

import fcntl
import html.parser
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import types
import unittest

TRAINER = os.environ["TUTTI_TRAINER"]
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/companions"))

from tutti import run_folder
from tutti.program import BAD_INPUT, Failure
from tutti.report import charts, classes, markup, page

START = {"event": "run", "command_line": ["trainer", "--out", "my run"], "device": "cpu", "ranks": 4, "parts": 8,
         "model": "lenet", "data": "/sets/glyphs", "exchange": "exact"}
HOSTILE = "<script>&\"'\u2028"
VOID = ("meta", "link", "img")


def epoch(number, loss=0.5, test=0.975):
    return {"event": "epoch", "epoch": number, "step": 100 * number, "train_loss": loss, "train_acc": 0.9,
            "test_loss": 0.25, "test_acc": test, "seconds": 1.5, "images_per_second": 12345.6, "lr": 0.05,
            "digest": "00ff"}


def time(number, worst, waiting):
    return {"event": "time", "epoch": number, "step": 100 * number, "seconds": 4.0, "data": 0.25, "compute": 3.0,
            "communication": 0.25, "waiting": waiting, "evaluation": 0, "checkpoint": 0, "other": 0,
            "worst": {"rank": worst, "host": f"n{worst}", "phase": "data", "seconds": waiting},
            "ranks": [{"compute": 4.0}, {"compute": 2.0, "waiting": 2.0}]}


def checkpoint(step, **more):
    return {"event": "checkpoint", "step": step, "file": f"step-{step}.h5", "bytes": 1048576, "seconds": 0.1,
            "stall_seconds": 0.002} | more


def evaluation(names, probability=0.9, times=1, pictures=True):
    """Of images of the first three classes, where the third is predicted as the first."""
    confusion = [[times * (predicted == label % 2 * label) if label < 3 else 0 for predicted in range(len(names))]
                 for label in range(len(names))]
    mistake = {"image": 2, "label": names[2], "predicted": names[0], "probability": probability,
               "probability_of_label": 1 - probability, "picture": "2.png"}
    scores = {"checkpoint": "run/checkpoints/step-00000200.h5", "step": 200, "set": "test", "data": "glyphs",
              "loss": 1.0, "accuracy": 2 / 3, "images": 3 * times, "mistakes": [mistake] * min(times, 4),
              "classes": [{"class": name, "images": times if label < 3 else 0, "correct": confusion[label][label]}
                          for label, name in enumerate(names)], "confusion": confusion}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "2.png").write_bytes(b"PNG")
        return classes.Evaluation(scores, pathlib.Path(folder) if pictures else None)


class Node:
    def __init__(self, name, attributes, parent):
        self.name, self.attributes, self.parent = name, dict(attributes), parent
        self.children = []
        self.text = ""

    def all(self, name):
        return [found for child in self.children
                for found in ([child] if child.name == name else []) + child.all(name)]

    def section(self, key):
        return next(one for one in self.all("section") if one.attributes["id"] == key)

    def rows(self, which=0):
        return [[cell.text for cell in row.children] for row in self.all("table")[which].all("tr")]

    def titles(self, name):
        return [one.all("title")[0].text for one in self.all(name)]


class Reader(html.parser.HTMLParser):
    """Refuses markup in which an element is not closed, or not where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open = self.root = Node("", {}, None)
        self.feed(text)
        self.close()
        if self.open is not self.root:
            raise AssertionError(f"<{self.open.name}> is not closed")

    def handle_starttag(self, tag, attrs):
        node = Node(tag, attrs, self.open)
        self.open.children.append(node)
        if tag not in VOID:
            self.open = node

    def handle_endtag(self, tag):
        if tag != self.open.name:
            raise AssertionError(f"</{tag}> in <{self.open.name}>")
        self.open = self.open.parent

    def handle_data(self, data):
        node = self.open
        while node:
            node.text += data
            node = node.parent


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, content):
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def page(self, *records, scores="the reason", defaults=(), tail=""):
        self.put("metrics.jsonl", "".join(json.dumps(one) + "\n" for one in records) + tail)
        return self.read(scores, defaults)

    def read(self, scores="", defaults=()):
        return Reader(page.page(run_folder.read(self.folder), classes.sections(scores), set(defaults))).root

    def headline(self, *records):
        return self.page(*records).all("title")[0].text

    def state(self, *records):
        return self.page(*records).all("header")[0].all("span")[0].text

    def test_says_in_one_line_how_good_the_network_is(self):
        self.assertEqual("lenet on glyphs: 99.48 % test accuracy after 2 epochs",
                         self.headline(START, epoch(1), epoch(2, test=0.9948)))
        self.assertEqual("lenet on glyphs: 90.00 % training accuracy after 1 epoch, not tested",
                         self.headline(START, epoch(1, test=None)))
        self.assertEqual("lenet on glyphs: no epoch has ended yet", self.headline(START))

    def test_loads_nothing_and_runs_no_script(self):
        root = self.page(START, epoch(1), time(1, 0, 0.5), scores=evaluation("abc"))
        self.assertFalse(root.all("script"))
        for name in ("a", "link", "img", "svg", "use", "image"):
            for node in root.all(name):
                for key in ("href", "src", "xlink:href", "srcset"):
                    self.assertRegex(node.attributes.get(key, ""), "^(#|data:|$)")
        self.assertNotRegex(root.all("style")[0].text, r"url\(|@import")
        self.assertEqual(page.POLICY, root.all("meta")[1].attributes["content"])

    def test_shows_the_last_record_of_every_epoch(self):
        curves = self.page(START, epoch(1), epoch(2, 0.75), START | {"ranks": 3}, epoch(2, 0.12345)).section("curves")
        self.assertEqual([["1", "100", "0.5000", "0.9000", "0.2500", "0.9750", "1.5", "12346", "0.05", "00ff"],
                          ["2", "200", "0.1235", "0.9000", "0.2500", "0.9750", "1.5", "12346", "0.05", "00ff"]],
                         curves.rows()[1:])
        loss = curves.all("figure")[0]
        self.assertIn("epoch 2: train 0.1235", loss.titles("circle"))
        self.assertIn("resumed", loss.text)
        self.assertEqual(4, len(curves.all("figure")))

    def test_says_whether_the_network_is_overfitting(self):
        said = "In epoch 3, the training accuracy is 90.00 %, and the test accuracy 50.00 %: the network is overfitting"
        self.assertIn(said, self.page(START, epoch(2, test=0.5), epoch(3, test=0.5)).section("curves").text)
        for last in (epoch(2, test=0.5), epoch(3, test=0.7), epoch(3, test=None)):
            self.assertNotIn("overfitting", self.page(START, epoch(1), last).section("curves").text)

    def test_counts_an_epoch_that_was_interrupted_once(self):
        begun = {"step": 150, "seconds": 0.5}
        root = self.page(START, epoch(1), epoch(2, 0.75) | begun, time(2, 1, 2.5) | begun, START | {"step": 150},
                         epoch(2), time(2, 1, 1.5))
        self.assertEqual(["1", "2"], [row[0] for row in root.section("curves").rows()[1:]])
        self.assertIn("training time3.00 s2 epochs", root.all("header")[0].text)
        self.assertIn("epoch 2: waiting 4 s, 36 %", root.section("time").titles("rect"))
        self.assertEqual([["1 on n1", "4.00 s", "1", "data"]], root.section("time").rows(1)[1:])

    def test_shows_hostile_text_as_text(self):
        self.put("exit.json", json.dumps({"status": 70, "reason": HOSTILE}))
        self.put("config.toml", f"model = {json.dumps(HOSTILE)}\n")
        root = self.page(START | {"model": HOSTILE}, epoch(1), scores=evaluation([HOSTILE, "b", "c"]))
        self.assertFalse(root.all("script"))
        for text in (root.all("h1")[0].text, root.section("classes").rows()[0][1], root.section("configuration").text,
                     root.section("events").text, root.section("mistakes").all("img")[0].attributes["alt"]):
            self.assertIn(HOSTILE, text)
        self.assertEqual("a\ufffdb\ufffd&lt;", markup.text("a\x01b\ud800<"))

    def test_shows_the_confusion_of_classes(self):
        section = self.page(START, scores=evaluation(["ankle boot", "bag", "coat"], times=2)).section("classes")
        self.assertIn("6 test images of glyphs, classified by step-00000200.h5 (step 200): 66.67 % correct, mean loss "
                      "1.0000", section.text)
        self.assertEqual([["true \\ predicted", "ankle boot", "bag", "coat"], ["ankle boot", "2", "·", "·"],
                          ["bag", "·", "2", "·"], ["coat", "2", "·", "·"]], section.rows())
        self.assertEqual([["coat", "2", "0 %", "", "-", "ankle boot (2)"],
                          ["ankle boot", "2", "100 %", "", "50.00 %", "-"],
                          ["bag", "2", "100 %", "", "100 %", "-"]], section.rows(1)[1:])

    def test_shows_the_most_confused_of_many_classes(self):
        section = self.page(START, scores=evaluation([f"class {i}" for i in range(40)])).section("classes")
        self.assertIn("the 24 of 40 classes with the most mistakes", section.text)
        self.assertEqual((25, 41), (len(section.rows()), len(section.rows(1))))
        self.assertEqual("others", section.rows()[0][-1])
        self.assertIn("class 2", section.rows()[0])

    def test_shows_which_images_were_classified(self):
        scores = evaluation("abc")
        for which, words in (("test", "3 test images of glyphs"), ("train", "3 training images of glyphs"),
                             ("all", "3 images of glyphs")):
            scores.json["set"] = which
            self.assertIn(words, self.page(START, scores=scores).section("classes").text)

    def test_shows_the_most_confident_mistakes(self):
        section = self.page(START, scores=evaluation("abc", 0.75, times=6)).section("mistakes")
        self.assertIn("The 4 most confident of 6 mistakes.", section.text)
        self.assertEqual(["data:image/png;base64,UE5H"] * 4, [one.attributes["src"] for one in section.all("img")])
        self.assertEqual("true: c, predicted: aa 75.00 %, c 25.00 %; image 2", section.all("figcaption")[0].text)
        without = self.page(START, scores=evaluation("abc", pictures=False)).section("mistakes")
        self.assertIn("left out (--no-images)", without.text)

    def test_shows_where_the_time_went_and_who_was_late(self):
        section = self.page(START, epoch(1), time(1, 0, 0.5), time(2, 1, 2.5)).section("time")
        by_epoch, by_rank = section.all("figure")
        self.assertIn("epoch 1: compute 3 s, 75 %", by_epoch.titles("rect"))
        self.assertIn("epoch 2: waiting 2.5 s, 42 %", by_epoch.titles("rect"))
        self.assertEqual(["rank 0: compute 8 s, 100 %", "rank 1: compute 4 s, 50 %", "rank 1: waiting 4 s, 50 %"],
                         by_rank.titles("rect"))
        self.assertEqual(["compute", "6.00 s", "60.00 %"], section.rows()[1][:3])
        self.assertEqual([["1 on n1", "2.50 s", "1", "data"], ["0 on n0", "0.50 s", "1", "data"]], section.rows(1)[1:])

    def test_lists_events_in_their_order(self):
        self.put("exit.json", '{"status":88,"rank":1,"host":"n1","reason":"the loss is not finite"}')
        diverged = {"event": "divergence", "step": 80, "ranks": [2], "tensors": ["w"]}
        wrong = {"event": "audit", "step": 82, "part": 5, "ranks": [2], "layer": "conv1", "pass": "forward"}
        undecided = {**wrong, "step": 83, "ranks": [0, 2], "decided": False}
        skipped = {"event": "skipped", "step": 85, "rank": 0, "tensor": "conv1/weight"}
        root = self.page(START, checkpoint(50), checkpoint(60, failure="disk full"), checkpoint(90), skipped, epoch(1),
                         START | {"ranks": 3}, diverged, wrong, undecided, skipped, epoch(1, 0.4), tail="no record\n")
        section = root.section("events")
        self.assertEqual([["0", "started", "4 ranks, cpu"], ["50", "resumed", "3 ranks, cpu"],
                          ["60", "checkpoint failed", "disk full"],
                          ["80", "replicas diverged", "rank 2 in w; the run ended"],
                          ["82", "wrong result", "rank 2 in part 5, forward pass of conv1; the run ended"],
                          ["83", "wrong result", "one of ranks 0, 2 in part 5, forward pass of conv1; the run ended"],
                          ["85", "step skipped", "conv1/weight was not finite at rank 0"],
                          ["100", "ended with status 88", "the loss is not finite (rank 1 on n1)"]], section.rows()[1:])
        self.assertIn("1 damaged line of metrics.jsonl was skipped.", section.text)
        self.assertIn("2 checkpoints saved in the background; training paused for 6 ms in total.", section.text)
        self.assertEqual(["60", "step-60.h5", "1.0 MiB", "0.10 s", "2 ms", "failed"], section.rows(1)[2])
        self.assertEqual("ended with status 88 after 100 steps: the loss is not finite",
                         root.all("header")[0].all("span")[0].text)

    def test_shows_the_state_of_the_run(self):
        self.assertEqual("done after 100 steps", self.state(START, epoch(1)))
        self.put("config.toml", "epochs = 5\n")
        self.assertEqual("ended in epoch 2 of 5 without giving a reason", self.state(START, epoch(1)))
        self.put("config.toml", "epochs = 1\n")
        self.assertEqual("done after 100 steps", self.state(START, epoch(1)))
        with (self.folder / "lock").open("w") as lock:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack(run_folder.FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            self.assertEqual("under way, 100 steps done", self.state(START, epoch(1)))
            self.assertRegex(self.headline(START, epoch(1)), "97.50 % test accuracy after 1 epoch so far$")

    def test_shows_a_finished_run_as_done_though_a_later_start_failed(self):
        self.put("exit.json", '{"status":65,"rank":0,"host":"n1","reason":"--batch-size 77 contradicts"}')
        done = {"event": "end", "step": 100, "status": "done"}
        root = self.page(START, epoch(1), done)
        self.assertEqual("done after 100 steps", root.all("header")[0].all("span")[0].text)
        self.assertEqual([["100", "ended", ""], ["100", "start failed", "--batch-size 77 contradicts (status 65)"]],
                         root.section("events").rows()[2:4])
        for last in (START, done | {"status": "stopped"}):
            self.assertIn("ended with status 65", self.state(START, epoch(1), done, last))

    def test_shows_the_configuration_of_every_start(self):
        self.put("config.toml", 'batch-size = 256\nlr = 0.05\nprecision = "fp32"\n')
        root = self.page(START, checkpoint(50), START | {"ranks": 3}, epoch(1),
                         defaults=["lr = 0.05", 'precision = "fp32"'])
        section = root.section("configuration")
        self.assertEqual(["", "start", "resumed at step 50"], section.rows()[0])
        self.assertIn(["ranks", "4", "3"], section.rows())
        self.assertIn(["command line"] + ["trainer --out 'my run'"] * 2, section.rows())
        self.assertEqual("batch-size = 256\n", section.all("pre")[0].text)
        self.assertIn("4 ranks, then 3 ranks · batch 256 in 8 parts · fp32", root.all("header")[0].text)

    def test_says_what_is_missing(self):
        root = self.page(START)
        for section, reason in (("curves", "nothing recorded"), ("classes", "Not available: the reason."),
                                ("mistakes", "Not available: the reason."), ("time", "There are no time records."),
                                ("events", "No checkpoint was saved."), ("configuration", "has no config.toml")):
            self.assertIn(reason, root.section(section).text)

    def test_refuses_a_folder_without_records(self):
        for text, message in ((None, "holds no metrics.jsonl: give the folder that a training had as --out"),
                              ("nothing\n", "holds no record yet")):
            if text:
                self.put("metrics.jsonl", text)
            with self.assertRaisesRegex(Failure, message) as caught:
                run_folder.read(self.folder)
            self.assertEqual(BAD_INPUT, caught.exception.status)

    def test_is_whole_whatever_the_records_contain(self):
        values = [None, True, -3, 9e3, 2**70, 1e308, -1e300, "x", "\ud800", [], [[7]], {}, {"a": [1]}, 10**400]
        files = {"metrics.jsonl": [START, epoch(1), checkpoint(100), time(1, 0, 0.5), START, epoch(2),
                                   {"event": "step", "step": 150, "train_loss": 1.0, "train_acc": 0.5, "lr": 0.1},
                                   {"event": "skipped", "step": 5}, {"event": "divergence", "step": 6, "ranks": []}],
                 "exit.json": [{"status": 75, "rank": 0, "host": "h", "reason": "r"}]}
        draw = random.Random(1)
        for _ in range(100):
            for name, records in files.items():
                records = [dict(record) for record in records]
                for record in draw.sample(records, draw.randint(0, len(records))):
                    record[draw.choice(list(record))] = draw.choice(values)
                data = bytearray("\n".join(map(json.dumps, [START, *records])).encode())
                for _ in range(draw.choice([0, 0, 3])):
                    data[draw.randrange(200, len(data)) if name == "metrics.jsonl" else 0] = draw.randrange(256)
                self.put(name, bytes(data))
            self.put("config.toml", draw.choice(["epochs = 5\n", "epochs = \n=\n", 'schedule = "step"\n', b"\xff = 1"]))
            self.read()


class Numbers(unittest.TestCase):
    def test_are_never_all_or_nothing_unless_they_are(self):
        for text, share in (("100 %", 1), ("> 99.99 %", 0.999999), ("< 0.01 %", 0.00001), ("0 %", 0)):
            self.assertEqual(text, markup.percent(share))
        for text, value in (("0 ms", 1.35e-10), ("12 ms", 0.012), ("3.21 s", 3.21), ("5 min 12 s", 312),
                            ("2 h 5 min", 7500)):
            self.assertEqual(text, markup.seconds(value))
        self.assertEqual("1,234,567", markup.count(1234567))

    def test_of_axes_are_round(self):
        self.assertEqual(6, len(charts.linear_axis(0, 0.9).ticks))
        narrow = charts.linear_axis(0.971, 0.9948)
        self.assertTrue(narrow.low <= 0.971 and 0.9948 <= narrow.high and len(narrow.ticks) <= 7)
        self.assertGreater(charts.linear_axis(3, 3).high, charts.linear_axis(3, 3).low)
        self.assertEqual([0, 1, 2], charts.linear_axis(0, 2, 7, whole=True).ticks)
        for (low, high), ticks in (((0.0013, 7), [0.01, 0.1, 1]), ((0.03, 0.46), [0.05, 0.1, 0.2, 0.5])):
            axis = charts.logarithmic_axis(low, high)
            self.assertEqual(ticks, [round(tick, 9) for tick in axis.ticks])
            self.assertAlmostEqual(axis.share(0.2) - axis.share(0.1), axis.share(0.4) - axis.share(0.2))


class Command(unittest.TestCase):
    """One run for all tests, which only read it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.run_folder = str(cls.folder / "run")
        cls.trainer("--data", "synthetic:96x1x6x6:4", "--model", "mlp", "--batch-size", "16", "--epochs", "3",
                    "--threads", "1", "--momentum", "0", "--out", cls.run_folder, "--quiet")

    @staticmethod
    def trainer(*words, ranks=0, status=0):
        launcher = [os.environ["TUTTI_MPIEXEC"], "-n", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, TRAINER, *words], capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != status:
            raise AssertionError(f"{words}: status {done.returncode}: {done.stderr}")
        return types.SimpleNamespace(out=done.stdout, err=done.stderr)

    def page(self, name="page.html"):
        return Reader((self.folder / name).read_text(encoding="utf-8")).root

    def test_shows_the_figures_of_eval_and_the_images(self):
        done = self.trainer("report", self.run_folder)
        self.assertRegex(done.out, rf"^{self.run_folder}/report.html: mlp on synthetic:96x1x6x6:4: \S+ % test accuracy "
                                   r"after 3 epochs, \d+ KiB, images classified by step-00000018.h5\n$")
        root = self.page("run/report.html")
        self.trainer("eval", "--quiet", "--checkpoint", self.run_folder, "--json", str(self.folder / "eval.json"))
        scores = json.loads((self.folder / "eval.json").read_text(encoding="utf-8"))
        self.assertIn(f"mean loss {scores['loss']:.4f}", root.section("classes").text)
        self.assertEqual(scores["confusion"], [[0 if cell == "·" else int(cell) for cell in row[1:]]
                                               for row in root.section("classes").rows()[1:]])
        images = root.section("mistakes").all("img")
        self.assertEqual(sum(scores["classes"][label]["images"] - row[label]
                             for label, row in enumerate(scores["confusion"])), len(images))
        for image in images:
            self.assertTrue(image.attributes["src"].startswith("data:image/png;base64,iVBORw0KGgo"))
        options = root.section("configuration").all("pre")[0].text
        self.assertIn('model = "mlp"\n', options)
        self.assertNotIn("lr = 0.05", options)

    def test_is_the_same_under_a_launcher(self):
        pages = []
        for ranks in (0, 2):
            path = self.folder / "page.html"
            done = self.trainer("report", f"{self.run_folder}@best", "-o", str(path), "--no-images", ranks=ranks)
            self.assertEqual(1, done.out.count("page.html: "))
            pages.append(path.read_bytes())
        self.assertEqual(pages[0], pages[1])
        self.assertFalse(self.page().all("img"))

    def test_says_in_the_page_that_data_or_checkpoints_are_missing(self):
        path = str(self.folder / "page.html")
        done = self.trainer("report", self.run_folder, "--output", path, "--data", "/nowhere/data")
        self.assertRegex(done.err, rf"(?m)^{path} has no per-class results and no mistakes: there is no data set "
                                   r"'/nowhere/data'; .*$")
        self.assertIn("/nowhere/data", self.page().section("classes").text)
        self.assertEqual(4, len(self.page().section("curves").rows()))
        copy = self.folder / "records"
        copy.mkdir()
        (copy / "metrics.jsonl").write_bytes(pathlib.Path(self.run_folder, "metrics.jsonl").read_bytes())
        self.assertRegex(self.trainer("report", str(copy), "--quiet").err,
                         r"^\S+/report.html has no per-class results and no mistakes: .* holds no checkpoints.*\n$")
        self.assertIn("holds no checkpoints", self.page("records/report.html").section("mistakes").text)

    def test_ends_with_the_status_of_the_trainer(self):
        self.assertIn("holds no metrics.jsonl", self.trainer("report", str(self.folder), status=65).err)
        self.assertIn("report --help", self.trainer("report", status=64).err)
        self.assertIn("--resident-mib", self.trainer("report", self.run_folder, "--resident-mib", "x", status=64).err)
        self.assertIn("cannot save '/proc/page.html'",
                      self.trainer("report", self.run_folder, "-o", "/proc/page.html", status=73).err)


if __name__ == "__main__":
    unittest.main()
