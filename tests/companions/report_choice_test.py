"""trainer report RUN@best and RUN@STEP: headline and figures are those of the chosen checkpoint, as its images are."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from report_test import START, TRAINER, epoch

from tutti import run_folder
from tutti.report import markup, page


class Choices(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_at(self, step):
        records = [START, epoch(1, test=0.5), epoch(2, test=0.99), epoch(3, test=0.75)]
        (self.folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        run = run_folder.read(self.folder)
        run.chosen_step = step
        return run

    def test_decide_the_headline_and_the_figures(self):
        for step, expected in ((None, "75.00 % test accuracy after 3 epochs"),
                               (200, "99.00 % test accuracy after 2 epochs of 3"),
                               (300, "75.00 % test accuracy after 3 epochs"), (250, "at step 250 of 300")):
            run = self.run_at(step)
            self.assertEqual(f"lenet on glyphs: {expected}", page.headline(run))
            tiles = str(page.page(run, [], set()))
            self.assertEqual(step == 200, "<dt>test accuracy</dt><dd><b>99.00 %</b>" in tiles.replace("\u00a0", " "))

    def test_may_be_of_a_run_without_a_mistake(self):
        records = [START] + [epoch(number, test=1.0) | {"train_acc": 1.0} for number in (1, 2)]
        (self.folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        self.assertIn("100 % test accuracy after 2 epochs", page.page(run_folder.read(self.folder), [], set()))

    def test_agree_with_the_classified_images(self):
        run = self.folder / "run"
        subprocess.run([TRAINER, "--data", "synthetic:96x1x6x6:4", "--model", "mlp", "--batch-size", "16", "--epochs",
                        "8", "--lr", "0.1", "--threads", "1", "--keep-best", "--keep-checkpoints", "0", "--out", run,
                        "--quiet"], check=True, stdout=subprocess.DEVNULL, timeout=120)
        for name in (f"{run}@best", f"{run}@6", str(run)):
            done = subprocess.run([TRAINER, "report", name, "-o", run / "page.html", "--no-images"], check=True,
                                  capture_output=True, text=True, timeout=120)
            step = int(re.search(r"classified by step-(\d+)\.h5", done.stdout)[1])
            records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
            recorded = next(one for one in records if one["event"] == "epoch" and one["step"] == step)
            self.assertIn(f" {markup.percent(recorded['test_acc'])} test", done.stdout)
            self.assertRegex(done.stdout, rf" after {recorded['epoch']} epochs?( of 8)?,")


if __name__ == "__main__":
    unittest.main()
