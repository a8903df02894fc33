"""trainer replay and trainer audit: honest runs are confirmed, and broken chains of records are found."""

import functools
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

TRAINER = os.environ["TUTTI_TRAINER"]
MPIEXEC = os.environ["TUTTI_MPIEXEC"]
COMPANIONS = pathlib.Path(__file__).resolve().parents[2] / "tools/companions"
STEP = 10  # steps between two checkpoints
STEPS = 60
MODEL = "--model mlp --parts 2 --batch-size 20 --test-every 1".split()
SAVING = ["--checkpoint-every", f"{STEP}steps", "--keep-checkpoints", "0", "--digest-every", "5"]


def run(*words, ranks=0, status=0):
    launch = [MPIEXEC, "-n", str(ranks)] if ranks else []
    ran = subprocess.run([*launch, *map(str, words)], capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == status, f"{words}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def train(out, *words, **launch):
    run(TRAINER, "--quiet", "--out", out, *words, **launch)
    return out


def write_images(folder, change=lambda labels: labels):
    """400 training and 100 test images as idx files."""
    folder.mkdir()
    draw = random.Random(1)
    for name, count in (("train", 400), ("t10k", 100)):
        labels = [draw.randrange(4) for _ in range(count)]
        images = [bytes(min(255, draw.randrange(60) + 150 * (place // 16 == label)) for place in range(64))
                  for label in labels]
        labels = change(labels) if name == "train" else labels
        images = images[:len(labels)]
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 0x803, len(labels), 8, 8) +
                                                           b"".join(images))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 0x801, len(labels)) + bytes(labels))
    return folder


def records_of(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        record.pop("hash", None)
    return records


def write_chain(folder, records):
    """Returns the hash of each record."""
    hashes, lines = [""], []
    for record in records:
        text = json.dumps(record, separators=(",", ":"))
        hashes.append(hashlib.sha256((hashes[-1] + text).encode()).hexdigest())
        lines.append(f'{text[:-1]},"hash":"{hashes[-1]}"}}\n')
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return hashes[1:]


@functools.cache
def honest_run():
    """Returns a folder for all trainings of the module, with the data and an honest run in it."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    root = pathlib.Path(folder.name)
    data = write_images(root / "data")
    return root, data, train(root / "honest", "--data", data, *MODEL, *SAVING, "--epochs", "3",
                             "--patience", "9")


class Audited(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root, cls.data, cls.honest = honest_run()

    def copy(self):
        folder = self.root / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        return pathlib.Path(shutil.copytree(self.honest, folder))

    def audit(self, folder, *words, status=0):
        return run(TRAINER, "audit", folder, *words, status=status)


class Replays(Audited):
    def test_give_the_state_of_any_step_on_any_number_of_ranks(self):
        for ranks, launch in (("1", 0), ("2", 0), (None, 2)):
            out = self.root / f"replay-{ranks}-{launch}"
            words = ["--ranks", ranks] if ranks else []
            printed = run(TRAINER, "replay", self.honest, "--to", "37", "--out", out, *words, ranks=launch)
            self.assertIn(f"steps 30 to 37 of {self.honest} replayed: 1 record confirmed", printed)
            self.assertEqual(["step-00000037.h5", "step-00000037.json"], sorted(os.listdir(out / "checkpoints")))
            train(out, "--resume", "--steps", "40")
            run(TRAINER, "diff", f"{out}@40", f"{self.honest}@40")
        self.assertIn("2 records and its checkpoint confirmed", run(TRAINER, "replay", self.honest, "--to", "10"))

    def test_refuse_steps_that_the_run_has_not_done_and_folders_in_use(self):
        run(TRAINER, "replay", self.honest, "--to", "61", status=64)
        run(TRAINER, "replay", self.honest, "--to", "0", status=64)
        run(TRAINER, "replay", self.honest, "--to", "5", "--out", self.data, status=64)

    def test_do_not_accuse_a_run_if_the_trainer_is_killed_or_cannot_be_started(self):
        fake = self.root / "fake"
        for command, status in (("kill -KILL $$", 137), ("exit 1", 65)):
            with self.subTest(command):
                fake.write_text(f'#!/bin/sh\n[ "$1" != --list-options ] || exec {TRAINER} "$@"\n{command}\n', "utf-8")
                fake.chmod(0o755)
                ran = subprocess.run([sys.executable, COMPANIONS / "trainer-replay", self.honest, "--to", "37"],
                                     env={**os.environ, "TUTTI_TRAINER": str(fake)}, capture_output=True, text=True,
                                     check=False, timeout=240)
                self.assertEqual((status, ""), (ran.returncode, ran.stdout), ran.stderr)
                self.assertRegex(ran.stderr, r"^fake: steps 30 to 37 cannot be replayed: \w")

    def test_name_the_checkpoint_that_cannot_be_compared(self):
        fake = self.root / "fake-diff"
        fake.write_text(f'#!/bin/sh\n[ "$1" != diff ] || kill -SEGV $$\nexec {TRAINER} "$@"\n', encoding="utf-8")
        fake.chmod(0o755)
        ran = subprocess.run([sys.executable, COMPANIONS / "trainer-replay", self.honest, "--to", "10"],
                             env={**os.environ, "TUTTI_TRAINER": str(fake)}, capture_output=True, text=True,
                             check=False, timeout=240)
        self.assertEqual((139, ""), (ran.returncode, ran.stdout), ran.stderr)
        self.assertRegex(ran.stderr, r"trainer diff was killed by signal 11; the checkpoint .*step-00000010.h5. may")


class HonestRuns(Audited):
    def test_are_confirmed_as_a_whole_or_in_part(self):
        self.assertIn("confirmed: 6 of 6 intervals, 60 of 60 steps (100%)", self.audit(self.honest))
        printed = self.audit(self.honest, "--intervals", "2", "--seed", "1")
        self.assertIn("confirmed: 2 of 6 intervals, 20 of 60 steps (33%)", printed)
        self.assertEqual(re.findall("steps .*", printed)[:2],
                         re.findall("steps .*", self.audit(self.honest, "--intervals", "2", "--seed", "1"))[:2])

    def test_continue_the_chain_and_may_change_options_on_a_resume(self):
        cosine = ["--data", self.data, *MODEL, "--schedule", "cosine", "--epochs", "1"]
        folder = train(self.root / "resumed", *cosine, "--steps", "13", "--log-every", "3", "--digest-every", "4")
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
            log.write('{"event":"dig')  # by a kill
        train(folder, "--resume", "--steps", "31", "--epochs", "4", "--log-every", "2", ranks=2)
        train(folder, "--resume", "--steps", "0", "--epochs", "2", "--keep-checkpoints", "2")
        printed = self.audit(folder)
        self.assertRegex(printed, r"^\d+ records form a chain\nsteps")
        # The first checkpoints are gone: the first interval has three launches.
        self.assertIn("confirmed: 2 of 2 intervals, 40 of 40 steps (100%)", printed)

    def test_need_the_same_ranks_without_exact_sums(self):
        folder = train(self.root / "ring", "--data", self.data, *MODEL[:2], "--epochs", "1", ranks=2)
        self.assertIn("(100%)", self.audit(folder))
        run(TRAINER, "audit", folder, "--ranks", "1", status=65)

    def test_of_early_versions_have_no_chain(self):
        folder = self.copy()
        lines = [json.dumps({name: value for name, value in record.items() if name != "configuration"})
                 for record in records_of(folder)]
        lines[0] = re.sub('"device": "[^"]*"', '"device": "another"', lines[0])
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        printed = self.audit(folder)
        self.assertTrue(printed.startswith("the records have no hashes\n"), printed)
        self.assertIn("(100%)", printed)
        self.assertRegex(printed, "the run used tutti .* on another, and this is .*: their bits may differ")

    def test_of_another_kind_of_cpu_are_confirmed(self):
        with unittest.mock.patch.dict(os.environ, TUTTI_MAX_CPU_ISA="SSE2"):
            folder = train(self.root / "older", "--data", self.data, *MODEL, *SAVING, "--epochs", "1")
        printed = self.audit(folder)
        self.assertIn("(100%)", printed)
        self.assertNotIn("may differ", printed)

    def test_are_not_accused_if_the_data_are_others(self):
        other = write_images(self.root / "other", lambda labels: labels[::-1])
        self.assertIn("give the data of the run", run(TRAINER, "replay", self.honest, "--to", "5", "--data", other,
                                                      status=65))

    def test_are_confirmed_as_far_as_the_time_suffices(self):
        folder = train(self.root / "long", "--data", self.data, *MODEL, "--epochs", "5000", "--steps", "60000",
                       "--checkpoint-every", "end", "--digest-every", "500")
        whole = float(re.search(r"\(100%\), in ([\d.]+) s", self.audit(folder)).group(1))
        to_stop = 4  # seconds, which a trainer that has not saved yet sets aside
        for share in (0.5, 0.25, 0.1):  # of the time that it took, perhaps on a machine that was busier then
            printed = self.audit(folder, "--minutes", str((to_stop + share * whole) / 60))
            if "confirmed: 1 of 1" not in printed:
                break
        self.assertRegex(printed, r"steps 0 to [1-9]\d*0: \d+ records confirmed\nconfirmed: 0 of 1 intervals, ")


class BrokenChains(Audited):
    def refused(self, change):
        folder = self.copy()
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        change(lines)
        (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
        return self.audit(folder, status=1)

    def test_are_named_by_their_line(self):
        def edit(lines):
            lines[6] = re.sub('"step":[0-9]+', '"step":11', lines[6])

        def insert(lines):
            lines.insert(5, '{"event":"epoch","step":12,"test_acc":1}\n')

        for change, expected in ((edit, "line 7 does not follow"), (insert, "line 6 has no hash"),
                                 (lambda lines: lines.insert(8, lines.pop(5)), "line 6 does not follow"),
                                 (lambda lines: lines.pop(4), "line 5 does not follow"),
                                 (lambda lines: lines.__delitem__(slice(20, None)), "lacks the record that preceded")):
            self.assertIn(expected, self.refused(change))


if __name__ == "__main__":
    unittest.main()
