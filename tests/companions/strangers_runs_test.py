"""Companions on run folders from strangers: what a run has not computed is not confirmed, no file outside the outputs
is written, and odd records end a command with an exit status of its own and one line."""

import copy
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

from audit_test import COMPANIONS, TRAINER, Audited, records_of, run, train, write_chain

sys.dont_write_bytecode = True
sys.path.insert(0, str(COMPANIONS))

from tutti import stored_options
from tutti.replay import RESULTS

MODEL = "--model mlp --parts 2 --batch-size 100 --test-every 1".split()  # 4 steps an epoch
STOPS_EARLY = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if "--steps" in words:
    words[words.index("--steps") + 1] = "35"
done = subprocess.run([{trainer!r}, *words])
sys.exit(75 if "--steps" in words else done.returncode)
"""


def sparse(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


class Strangers(Audited):
    def program(self, text):
        path = self.root / "program"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def call(self, command, *words, program=TRAINER):
        """Returns the status of a companion, and what it printed."""
        ran = subprocess.run([sys.executable, COMPANIONS / f"trainer-{command}", *words], capture_output=True,
                             env={**os.environ, "TUTTI_TRAINER": str(program)}, text=True, check=False, timeout=240)
        return ran.returncode, ran.stdout, ran.stderr

    @staticmethod
    def write(folder, records):
        """Without hashes, so that the hashes in the checkpoints do not matter."""
        (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")

    def with_options(self, *lines):
        """A run whose record and config.toml have these options, too."""
        folder = self.copy()
        records = records_of(folder)
        for record in records:
            if record["event"] == "run":
                record["configuration"] += "".join(f"{line}\n" for line in lines)
        self.write(folder, records)
        (folder / "config.toml").write_text(records[0]["configuration"], encoding="utf-8")
        return folder


class Confirmations(Strangers):
    def test_need_all_steps_that_were_asked_for(self):
        program = self.program(STOPS_EARLY.format(python=sys.executable, trainer=TRAINER))
        out = self.root / "stopped"
        status, printed, errors = self.call("replay", self.honest, "--to", "40", "--out", out, program=program)
        self.assertEqual((75, ""), (status, printed), errors)
        self.assertIn("steps 30 to 40 are not replayed: the trainer was stopped after step 35", errors)
        self.assertEqual(75, self.call("audit", self.honest, "--intervals", "1", program=program)[0])

    def test_need_options_that_lead_to_all_that_the_run_claims(self):
        folder = train(self.root / "one-epoch", "--data", self.data, *MODEL, "--epochs", "1", "--digest-every", "1")
        records = records_of(folder)
        results = [record for record in records if record["event"] in ("digest", "epoch")]
        records[-1:-1] = [record | {"step": record["step"] + 4} | ({"epoch": 2} if "epoch" in record else {})
                          for record in copy.deepcopy(results)]
        write_chain(folder, sorted(records[:-1], key=lambda one: one.get("step", 0)))
        shutil.rmtree(folder / "checkpoints")
        for command in (["audit", folder], ["replay", folder, "--to", "8"]):
            self.assertIn("step 5: the run claims steps up to 8, and with the options that it recorded it ends after "
                          "step 4", run(TRAINER, *command, status=1))

    def test_of_nothing_are_no_success(self):
        status, printed, errors = self.call("replay", self.honest, "--to", "33", "--out", self.root / "between")
        self.assertEqual(65, status, printed + errors)
        self.assertIn("no result of steps 31 to 33; replay to step 35, which has one", errors)
        self.assertTrue((self.root / "between/checkpoints/step-00000033.h5").exists())
        folder = self.copy()
        records = records_of(folder)
        shutil.rmtree(folder / "checkpoints")
        write_chain(folder, [*records, records[0]])
        self.assertIn("the records of steps 1 to 60 are not confirmed", run(TRAINER, "audit", folder, status=65))
        write_chain(folder, records[:1])
        self.assertIn("nothing is confirmed: the run has recorded no results", run(TRAINER, "audit", folder, status=65))


    def test_need_all_results_that_the_run_could_claim(self):
        claims = {"without results": lambda one: [one.pop(name) for name in list(one) if one["event"] in RESULTS and
                                                  name not in ("event", "step", "epoch", "unix_time")],
                  "with empty results": lambda one: one.update({name: None for name in RESULTS.get(one["event"], ())}),
                  "of later steps": lambda one: one["event"] == "end" and one.update(step=10**6),
                  "of a later start": lambda one: one["event"] == "end" and one.update(self.first, step=10**6)}
        for what, change in claims.items():
            folder = self.copy()
            shutil.rmtree(folder / "checkpoints")
            records = records_of(folder)
            self.first = records[0]
            for record in records:
                change(record)
            write_chain(folder, records)
            with self.subTest(what):
                self.assertIn(" not confirmed: ", run(TRAINER, "audit", folder, status=65))
                status, _, errors = self.call("replay", folder, "--to", "60")
                self.assertEqual(0 if "later" in what else 65, status, errors)

    def test_need_records_that_the_stored_options_make(self):
        folder = self.copy()
        shutil.rmtree(folder / "checkpoints")
        records = [{name: value for name, value in record.items() if name != "configuration"}
                   for record in records_of(folder)]
        records[1:1] = [{"event": "step", "step": step, "train_loss": 0.1, "train_acc": 1, "lr": 0.05}
                        for step in (1, 2, 3)]
        self.write(folder, records)
        self.assertIn("3 records not confirmed: ", run(TRAINER, "audit", folder, status=65))

    def test_include_epochs_and_what_the_run_says_of_itself(self):
        for event, name, value, said in (("epoch", "epoch", 90, "step 20: epoch 90 in the epoch record, 1 in the"),
                                         ("epoch", "digest", "0" * 16, 'step 20: weights "0000000000000000" in the'),
                                         ("run", "model", "resnet50", 'model "resnet50" in the run record, "mlp" in'),
                                         ("run", "data", "imagenet", 'data "imagenet" in the run record, "'),
                                         ("run", "parameters", 10**9, "parameters 1000000000 in the run record, "),
                                         ("run", "seed", 7, "seed 7 in the run record, 0 in the replay")):
            folder = self.copy()
            shutil.rmtree(folder / "checkpoints")
            records = records_of(folder)
            next(record for record in records if record["event"] == event)[name] = value
            write_chain(folder, [record for record in records if record["event"] != "digest"])
            with self.subTest(event, name=name):
                self.assertIn(said, run(TRAINER, "audit", folder, status=1))


class StoredOptions(Strangers):
    def test_have_a_use_each(self):
        names = {line.partition(" = ")[0] for line in run(TRAINER, "--dry-run").splitlines()}
        uses = stored_options.uses()
        self.assertEqual(names, set(uses))
        for name in ("out", "trace", "sample-log", "plan-cache", "device", "steps"):
            self.assertNotIn(uses[name], stored_options.TAKEN, name)
        for name in ("lr", "data", "log-every", "epochs"):
            self.assertIn(uses[name], stored_options.TAKEN, name)

    def test_of_earlier_versions_split_regardless_of_classes(self):
        old = stored_options.for_replay("validation-ratio = 0.2\n", "old")
        self.assertIn('\nvalidation-split = "random"\n', old)
        new = stored_options.for_replay('validation-split = "stratified"\n', "new")
        self.assertIn('validation-split = "stratified"\n', new)
        self.assertNotIn("random", new)

    def test_of_earlier_versions_have_64_bit_sums(self):
        for line in ("", 'wire = "fp32"\n'):
            self.assertIn('wire = "int64"\n', stored_options.for_replay('exchange = "exact"\n' + line, "old"))
        for text in ('exchange = "exact"\nwire = "int32"\n', 'exchange = "ring"\nwire = "fp32"\n'):
            self.assertIn(text, stored_options.for_replay(text, "new"))

    def test_write_no_files(self):
        target = self.root / "target"
        target.write_text("mine", encoding="utf-8")
        for line in (f'trace="{target}"', f'"sample-log" = "{target}"', f'plan-cache = """{target}"""',
                     f'"\\u0074race" = "{target}"', f'lr = 0.05 # \rtrace = "{target}"', f"trace = '{target}'",
                     'lr = 0.1', 'data = "\\uD800"', "rehearse = \"kill:rank=0,step=1\"", "[table]"):
            folder = self.with_options(line)
            for command in (["audit"], ["replay", "--to", "5"]):
                with self.subTest(line, command=command):
                    refused = run(TRAINER, command[0], folder, *command[1:], status=65)
                    self.assertRegex(refused, r"metrics.jsonl, line 1, line \d+ of its options: \S")
        for early in (False, True):
            for name, default in (("trace", ""), ("sample-log", ""), ("plan-cache", "auto")):
                folder = self.copy()
                records = records_of(folder)
                for record in records:
                    if "configuration" in record:
                        text = record["configuration"].replace(f'{name} = "{default}"', f'{name} = "{target}"')
                        record["configuration"] = text
                        if early:
                            (folder / "config.toml").write_text(record.pop("configuration"), encoding="utf-8")
                self.assertIn(str(target), text)
                self.write(folder, records)
                with self.subTest(name, early=early):
                    run(TRAINER, "replay", folder, "--to", "5")
        self.assertEqual("mine", target.read_text(encoding="utf-8"))

    def test_in_a_checkpoint_write_no_files(self):
        target = self.root / "plans"
        target.write_text("mine", encoding="utf-8")
        folder = train(self.root / "plan-cache", "--data", self.data, *MODEL, "--epochs", "2", "--plan-cache", target,
                       "--checkpoint-every", "4steps")
        before = target.read_text(encoding="utf-8")
        program = self.program(f'#!/bin/sh\necho "$@" >>{self.root}/words\n'
                               f'[ "$1" != --config ] || cat "$2" >>{self.root}/words\nexec {TRAINER} "$@"\n')
        status, _, errors = self.call("replay", folder, "--to", "8", "--plan-cache", target, program=program)
        self.assertEqual(0, status, errors)
        words = (self.root / "words").read_text(encoding="utf-8")
        self.assertIn('plan-cache = "auto"', words)
        self.assertNotIn(str(target), words)
        self.assertRegex(words, r"--plan-cache \S+/run/plan-cache\b")
        self.assertEqual(before, target.read_text(encoding="utf-8"))


class Records(Strangers):
    def test_choose_no_folder_and_write_through_no_link(self):
        folder = self.with_options()
        records = records_of(folder)
        outside = self.root / "outside"
        outside.mkdir(exist_ok=True)
        target = outside / "file"
        target.write_text("mine", encoding="utf-8")
        records[0]["host"] = "a/../../../outside/x"
        records[0]["unix_time"] = 5
        self.write(folder, records)
        (folder / "tensorboard/events.out.tfevents.5.a").mkdir(parents=True)
        (folder / "tensorboard/events.out.tfevents.5.a_.._.._.._outside_x.0").symlink_to(target)
        (folder / "report.html").symlink_to(target)
        self.assertEqual(0, self.call("tensorboard", folder)[0])
        self.assertEqual(0, self.call("report", folder, "--no-images")[0])
        self.assertEqual((["file"], "mine"), (os.listdir(outside), target.read_text(encoding="utf-8")))
        self.assertFalse((folder / "report.html").is_symlink())

    def test_name_no_link_as_the_folder_of_events(self):
        folder = self.copy()
        outside = self.root / "linked"
        outside.mkdir()
        (folder / "tensorboard").symlink_to(outside)
        status, _, errors = self.call("tensorboard", folder)
        self.assertEqual((73, []), (status, os.listdir(outside)))
        self.assertIn("is a link: give the folder for the events as --to", errors)
        self.assertEqual(0, self.call("tensorboard", folder, "--to", outside)[0])

    def test_that_are_pipes_or_too_large_are_refused_at_once(self):
        checkpoint = "checkpoints/step-00000010.json"
        for name, commands in (("metrics.jsonl", ("audit", "tensorboard", "report", "mlperf-log")),
                               (checkpoint, ("audit",)), ("config.toml", ("report",)), ("exit.json", ("report",))):
            for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), sparse):
                folder = self.copy()
                (folder / name).unlink(missing_ok=True)
                make(folder / name)
                for command in commands:
                    with self.subTest(name, command=command):
                        status, _, errors = self.call(command, folder, program="/bin/false")
                        self.assertEqual(74, status, errors)
                        self.assertRegex(errors, rf"cannot read '.*{name}': it is (a pipe|too large: it has \d+ bytes)")

    def test_do_not_control_the_terminal(self):
        folder = self.with_options()
        records = records_of(folder)
        records[0].update(model="m\x1b]0;title\x07", data="d\x1b[2J\nreport.html: all is well")
        self.write(folder, records)
        status, printed, _ = self.call("report", folder, "--no-images", "-o", self.root / "page.html")
        self.assertEqual((0, 1), (status, printed.count("\n")))
        self.assertNotIn("\x1b", printed)
        self.assertIn("m\\x1b]0;title\\x07 on d\\x1b[2J report.html: all is well", printed)
        manifest = next((folder / "checkpoints").glob("step-00000010.json"))
        content = json.loads(manifest.read_text(encoding="utf-8")) | {"weights": "\x1b[2J"}
        manifest.write_text(json.dumps(content), encoding="utf-8")
        self.assertNotIn("\x1b", run(TRAINER, "audit", folder, status=1))

    def test_of_any_kind_end_a_command_with_its_own_status(self):
        values = [None, True, -3, 0, 9e3, 2**70, 1e308, float("inf"), float("nan"), "x", "\ud800", [], [[7]], {},
                  10**400]
        draw = random.Random(int(os.environ.get("TUTTI_SEED", "1")))
        lists_only = self.root / "lists-only"  # a trainer that fails when it is started on ranks
        lists_only.write_text(f'#!/bin/sh\n[ "$1" = --list-options ] && exec {TRAINER} "$@"\nexit 1\n', "utf-8")
        lists_only.chmod(0o755)
        folder = self.copy()
        honest = records_of(folder)
        for number in range(int(os.environ.get("TUTTI_MUTANTS", "30"))):
            records = copy.deepcopy(honest)
            for record in draw.sample(records, draw.choice((1, 1, 3))):
                record[draw.choice(list(record))] = draw.choice(values)
            lines = [json.dumps(record) for record in records]
            if draw.random() < 0.3:
                lines[draw.randrange(len(lines))] = draw.choice(["[]", "7", "{", "[" * 100000, '{"event":[]}', "null"])
            (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            for command, words in draw.sample([("tensorboard", []), ("mlperf-log", []), ("report", ["--no-images"]),
                                               ("replay", ["--to", "60"]), ("audit", ["--intervals", "1"])], 2):
                with self.subTest(command, number=number):
                    status, printed, errors = self.call(command, folder, *words, program=lists_only)
                    self.assertNotIn("Traceback", errors)
                    self.assertNotIn("internal error", errors)
                    self.assertTrue(status in (0, 65, 66) or status == 1 and "does not hold: " in printed, errors)


if __name__ == "__main__":
    unittest.main()
