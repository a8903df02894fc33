"""trainer audit on forged runs: all are found if all intervals are audited, and else as often as expected.

TUTTI_FORGERIES sets their number. The forgers keep records and checkpoints consistent: hashes, seals, SHA-256 sums and
digests are computed again, so that only a replay finds most of them.
"""

import collections
import json
import math
import os
import random
import re
import shutil
import subprocess
import unittest

from audit_test import MODEL, SAVING, STEP, STEPS, TRAINER, Audited, records_of, run, train, write_chain, write_images

FORGE = os.environ["TUTTI_FORGE"]
FORGERIES = int(os.environ["TUTTI_FORGERIES"])
RESULTS = {"digest": ("gradients", "weights", "optimizer"),
           "epoch": ("digest", "train_loss", "train_acc", "test_loss", "test_acc")}


def checkpoint(folder, step):
    return folder / f"checkpoints/step-{step:08}.h5"


class Forger:
    """Makes a run that claims to be the honest one. Intervals are named by their ends."""

    def __init__(self, test, draw, folder):
        self.test, self.draw, self.folder = test, draw, folder
        self.honest = test.honest
        self.sources = {step: self.honest for step in range(STEP, STEPS + 1, STEP)}  # of the states
        self.nudges = {}
        self.records = records_of(self.honest)
        self.pieces = 0

    def take(self, source, steps):
        """Claims the states and results of another run for these steps."""
        found = {(record["event"], record.get("step")): record for record in records_of(source)}
        for step in self.sources:
            if step in steps:
                self.sources[step] = source
        for record in self.records:
            if record["event"] in RESULTS and record["step"] in steps:
                record.update({name: found[record["event"], record["step"]][name]
                               for name in RESULTS[record["event"]]})

    def forge(self, step, options, position, folder, nudge=0.0, metrics_hash=""):
        run(FORGE, checkpoint(self.sources[step], step), options, position, nudge, metrics_hash,
            folder / "checkpoints")

    def train_on(self, begin, end, options=None, position=None, words=()):
        """Continues the forged run from a checkpoint, with the options of another one or from a later position, and
        claims the results. Returns the folder of this training."""
        self.pieces += 1
        piece = self.folder.with_name(f"{self.folder.name}-{self.pieces}")
        (piece / "checkpoints").mkdir(parents=True)
        position = position or begin
        self.forge(begin, options or checkpoint(self.honest, begin), checkpoint(self.honest, position), piece)
        train(piece, "--resume", *SAVING, "--steps", end, *words)
        self.take(piece, range(position + 1, end + 1))
        return piece

    def write(self):
        """Makes the log and the checkpoints consistent."""
        shutil.copytree(self.honest, self.folder)
        for metrics_hashes in ({}, None):
            if metrics_hashes is None:
                hashes = write_chain(self.folder, self.records)
                metrics_hashes = {record["step"]: one for record, one in zip(self.records, hashes)
                                  if record["event"] == "digest"}
            for step in self.sources:
                honest = checkpoint(self.honest, step)
                self.forge(step, honest, honest, self.folder, self.nudges.get(step, 0), metrics_hashes.get(step, ""))
                weights = json.loads(checkpoint(self.folder, step).with_suffix(".json").read_text())["weights"]
                for record in self.records:
                    if record["event"] in RESULTS and record["step"] == step:
                        record["weights" if record["event"] == "digest" else "digest"] = weights
        return self.folder

    def step(self, last=STEPS):
        return self.draw.randrange(STEP, last + 1, STEP)

    # The kinds of forgeries: each returns the intervals that do not hold.

    def edited_weights(self):
        step = self.step()
        self.nudges[step] = 1e-3
        return {step, step + STEP}

    def another_rate(self):
        begin = self.step(last=STEPS - STEP)
        other = self.test.trained("--lr", "0.06", "--steps", "1")
        self.train_on(begin, begin + STEP, checkpoint(other, 1))
        if begin + STEP < STEPS:
            self.train_on(begin + STEP, STEPS)
        return {begin + STEP}

    def relabelled_or_dropped_samples(self):
        begin = self.step(last=STEPS - STEP)
        data = self.draw.choice([self.test.relabelled, self.test.dropped])
        other = self.test.trained("--steps", "1", data=data)
        self.train_on(begin, STEPS, checkpoint(other, 1), words=["--data", data])
        return set(range(begin + STEP, STEPS + 1, STEP))

    def skipped_steps(self):
        begin = self.step(last=STEPS - 2 * STEP)
        self.sources[begin + STEP] = self.train_on(begin, STEPS, position=begin + STEP)
        return {begin + STEP}

    def checkpoint_of_another_run(self):
        step = self.step()
        self.sources[step] = self.test.trained("--seed", "5")
        return {step, step + STEP}

    def edited_accuracies(self):
        epoch = self.draw.choice([record for record in self.records if record["event"] == "epoch"])
        epoch[self.draw.choice(["test_acc", "train_acc"])] += 0.01
        return {epoch["step"]}

    def reordered_records(self):
        one, other = self.draw.sample([record for record in self.records if record["event"] == "digest" and
                                       record["step"] % STEP], 2)
        for name in RESULTS["digest"]:
            one[name], other[name] = other[name], one[name]
        return {one["step"] + STEP // 2, other["step"] + STEP // 2}

    def another_seed(self):
        self.take(self.test.trained("--seed", str(self.draw.randrange(1, 4))), range(1, STEPS + 1))
        return set(self.sources)

    def changed_options(self):
        options = self.draw.choice(["--momentum 0.8", "--weight-decay 1e-3", "--label-smoothing 0.05"])
        self.take(self.test.trained(*options.split()), range(1, STEPS + 1))
        return set(self.sources)

    def truncated_log(self):
        last = self.step(last=STEPS - STEP)
        self.cut = next(place for place, record in enumerate(self.records) if record.get("step", 0) > last)
        return set()


KINDS = [Forger.edited_weights, Forger.another_rate, Forger.relabelled_or_dropped_samples, Forger.skipped_steps,
         Forger.checkpoint_of_another_run, Forger.edited_accuracies, Forger.reordered_records, Forger.another_seed,
         Forger.changed_options, Forger.truncated_log]


class Forgeries(Audited):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.relabelled = write_images(cls.root / "relabelled",
                                      lambda labels: [3 - label for label in labels[:40]] + labels[40:])
        cls.dropped = write_images(cls.root / "dropped", lambda labels: labels[:-5])
        cls.made = {}

    def trained(self, *words, data=None):
        """Another run, with these options."""
        words = ("--data", data or self.data, *words)
        if words not in self.made:
            self.made[words] = train(self.root / f"other-{len(self.made)}", *MODEL, *SAVING, "--epochs", "3", *words)
        return self.made[words]

    def forgery(self, number):
        """A forged run, and its intervals that do not hold; none if its records do not."""
        forger = Forger(self, random.Random(number), self.root / f"forged-{number}")
        wrong = KINDS[number % len(KINDS)](forger) & set(forger.sources)
        folder = forger.write()
        if not wrong:
            lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / "metrics.jsonl").write_text("".join(lines[:forger.cut]), encoding="utf-8")
        return folder, wrong

    def check_part(self, folder, wrong, number):
        """Audits some intervals. Returns whether the forgery was found, and the probability of that."""
        count, all_of_them = random.Random(-number).randrange(1, 4), STEPS // STEP
        audited = subprocess.run([TRAINER, "audit", folder, "--intervals", str(count), "--seed", str(number)],
                                 capture_output=True, text=True, check=False, timeout=240)
        confirmed = {int(end) for end in re.findall(r"^steps \d+ to (\d+): ", audited.stdout, re.MULTILINE)}
        self.assertEqual(set(), confirmed & wrong, audited.stdout)
        if audited.returncode == 0:
            self.assertEqual(count, len(confirmed), audited.stdout)
        else:
            self.assertEqual(1, audited.returncode, audited.stdout + audited.stderr)
        chance = 1 - math.comb(all_of_them - len(wrong), count) / math.comb(all_of_them, count) if wrong else 1
        return audited.returncode == 1, chance

    def test_are_found_where_they_are_audited(self):
        found, chances = collections.Counter(), collections.defaultdict(list)
        for number in range(FORGERIES):
            kind = KINDS[number % len(KINDS)].__name__
            folder, wrong = self.forgery(number)
            with self.subTest(kind=kind, number=number):
                printed = self.audit(folder, "--seed", "0", status=1)
                step = int(re.search(r"does not hold: step (\d+)", printed)[1])
                self.assertTrue(not wrong or -(-step // STEP) * STEP in wrong, printed)
                if kind in ("edited_weights", "checkpoint_of_another_run"):
                    self.assertRegex(printed, r"/parameters: \d of \d tensors differ, first ")
                is_found, chance = self.check_part(folder, wrong, number)
                found[kind] += is_found
                chances[kind].append(chance)
            for leftover in self.root.glob(f"forged-{number}*"):
                shutil.rmtree(leftover)
        for kind, of_kind in chances.items():
            print(f"{kind}: all {len(of_kind)} found; when some intervals are audited {found[kind]}, "
                  f"expected {sum(of_kind):.1f}")
        everything = [chance for of_kind in chances.values() for chance in of_kind]
        expected, deviation = sum(everything), math.sqrt(sum(chance * (1 - chance) for chance in everything))
        print(f"{FORGERIES} forgeries: {sum(found.values())} found, expected {expected:.1f} +- {deviation:.1f}")
        self.assertLessEqual(abs(sum(found.values()) - expected), 3 * deviation + 1e-9)


if __name__ == "__main__":
    unittest.main()
