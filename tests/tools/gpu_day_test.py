"""Rehearses tools/gpu-day with fake programs for the trainer, mpirun, PyTorch and CUDA's tools."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))

from gpu_day import bundle, command_line, parts, speed, status, tables, targets, training
from gpu_day.session import Results, Session

# Has the output of the trainer. Its weights depend on --in-flight and --bucket-mib if a file requests it.
TRAINER = f"#!{sys.executable}\n" """import json, os, pathlib, sys, time
words = sys.argv[1:]
value = lambda name, other: words[words.index(name) + 1] if name in words else other
here = pathlib.Path(__file__).resolve().parent
if (here / "broken").exists(): sys.exit("a broken trainer")
if "bench" in words:
    json.dump({"images_per_second": 300, "libraries": "ours", "stall_of_step": 0.5, "bandwidth_of_plain": 0.5},
              open(value("--json", os.devnull), "w"))
    sys.exit()
if "--out" not in words: sys.exit()
out = pathlib.Path(value("--out", ""))
out.mkdir(parents=True, exist_ok=True)
records = [{"event": "step", "step": step, "train_loss": 2.5 / step} for step in (1, 2, 20)]
digest = value("--in-flight", value("--bucket-mib", value("--comm", "0"))) if (here / "biased").exists() else "0"
records += [{"event": "digest", "step": 1, "weights": digest}] if "--digest-every" in words else []
records += [{"event": "epoch", "epoch": 1, "train_loss": 1, "train_acc": 0.5, "test_acc": 0.95, "seconds": 2,
             "images_per_second": 100, "digest": digest}]
with open(out / "metrics.jsonl", "w") as file:
    for record in records: file.write(json.dumps(record, separators=(",", ":")) + "\\n")
if value("--epochs", "1") == "100000": time.sleep(60)
"""
MPIRUN = f"#!{sys.executable}\n" """import pathlib, subprocess, sys, time
words = sys.argv[3:]
words = words[:words.index(":")] if ":" in words else words
ranks = [subprocess.Popen(words) for _ in range(int(sys.argv[2]))]
stopped = lambda rank: pathlib.Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() is None and stopped(rank) for rank in ranks):
        for rank in ranks: rank.kill()
    time.sleep(0.02)
sys.exit(max(rank.returncode for rank in ranks))
"""
PYTHON = f"#!{sys.executable}\n" """import json, sys
if sys.argv[1] == "-c": print(json.dumps({"PyTorch": "9"})); sys.exit()
if "ceilings" in sys.argv[1]: print(json.dumps({"copy_tb_per_s": 4, "matmul_tflop_per_s": 800})); sys.exit()
if "--compile" in sys.argv and "resnet50" in sys.argv: sys.exit("no compiler")
print("noise\\n" + json.dumps({"libraries": "theirs"}), flush=True)
for _ in sys.stdin: print(json.dumps({"images_per_second": 200 if "--compile" in sys.argv else 150}), flush=True)
"""
NCU = """#!/bin/bash
echo '==PROF== Connected'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
for ((i = 0; i < $(sed 's/.*--timed-steps \\([0-9]*\\).*/\\1/' <<<"$*"); ++i)); do
  echo "\\"$i\\",\\"norm_apply\\",\\"gpu__time_duration.sum\\",\\"ns\\",\\"1,500\\""
  echo "\\"$i\\",\\"norm_apply\\",\\"dram__bytes.sum\\",\\"byte\\",\\"3000\\""
done
echo '"9","initialise","gpu__time_duration.sum","ns","7000"'
"""
SANITIZER = """#!/bin/bash
[[ $* != *racecheck* ]] || { echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'; exit 9; }
echo '========= ERROR SUMMARY: 0 errors'
"""
TESTS = {"backend.cuda_good": "echo '[  PASSED  ] 3 tests.'",
         "nn.cuda_bad": "echo '[  FAILED  ] Suite.DoesThis'; exit 1",
         "comm.cuda_slow": "[[ $COLOUR == blue ]] && sleep 60"}


def record(figures, rehearsal=False, when="2026-01-01"):
    return {"when": when, "gpu": "G", "driver": "1", "commit": "c", "rehearsal": rehearsal, "outcome": "ran",
            "figures": figures, "tables": [{"title": "T", "header": ["a", "b"], "rows": [["x|y", "1"]]}]}


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)


class Rehearsal(Folder):
    def setUp(self):
        super().setUp()
        self.bundle = self.root / "bundle"
        for name, text in (("trainer", TRAINER), ("mpirun", MPIRUN), ("python", PYTHON), ("ncu", NCU),
                           ("compute-sanitizer", SANITIZER)):
            program(self.bundle / "bin" / name, text)
        tests = []
        for name, script in TESTS.items():
            program(self.bundle / "bin" / name, f"#!/bin/bash\n{script}\n")
            tests.append({"name": name, "command": [f"{{bundle}}/bin/{name}"], "labels": ["gpu"],
                          "seconds": 1 if "slow" in name else 60, "environment": ["COLOUR=blue"]})
        facts = {"commit": "c0ffee", "needs": {"cuda": []}, "tests": tests}
        (self.bundle / "bundle.json").write_text(json.dumps(facts), encoding="utf-8")
        path = mock.patch.dict(os.environ, {"TUTTI_PYTHON": str(self.bundle / "bin/python"),
                                            "PATH": f"{self.bundle}/bin:{os.environ['PATH']}"})
        path.start()
        self.addCleanup(path.stop)

    def run_parts(self, *names):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = command_line.main(["run", "--rehearse", "--bundle", str(self.bundle), "--limit", "100",
                                      "--out", str(self.root / "out"), *names])
        return code, output.getvalue(), json.loads((self.root / "out/results.json").read_text(encoding="utf-8"))

    def options(self, *words):
        return command_line.parse(["run", "--bundle", str(self.bundle), "--out", str(self.root), *words])

    def test_runs_every_part_and_does_not_count_as_a_run(self):
        code, output, results = self.run_parts()
        failed = {name: one["outcome"] for name, one in results.items() if one["outcome"] != "ran"}
        self.assertEqual({"tests", "sanitizers-threads", "speed-resnet50"}, set(failed), failed)
        self.assertEqual(1, code)
        self.assertIn("a rehearsal, or had no GPU", output)
        self.assertIn("Nothing has ever run on a GPU", (self.root / "out/GPU-STATUS.md").read_text(encoding="utf-8"))
        self.assertEqual(1.5, results["speed-lenet"]["figures"]["lenet_64.ratio_compiled"])
        self.assertEqual(0, results["ranks"]["figures"]["lenet_loss_apart_4"])
        self.assertEqual(0, results["exchange"]["figures"]["central_loss_apart_4"])
        self.assertEqual(0.0015, results["profile"]["figures"]["lenet_kernel_ms"])
        self.assertIn("batch norms", str(results["profile"]["tables"][0]["rows"]))

    def test_gives_every_test_its_result(self):
        _, output, results = self.run_parts("tests", "sanitizers")
        self.assertEqual({"programs_passed": 1, "cases_passed": 3, "failed": 2}, results["tests"]["figures"])
        self.assertRegex(output, r"backend.cuda_good +passed +3")
        self.assertRegex(output, r"nn.cuda_bad +FAILED \(1\) +0 +Suite.DoesThis")
        self.assertRegex(output, r"comm.cuda_slow +FAILED \(time\)")
        for check in ("memcheck", "initcheck", "synccheck"):
            self.assertRegex(output, rf"{check} backend.cuda_good +clean +0 errors")
        self.assertRegex(output, r"racecheck backend.cuda_good +NOT CLEAN \(9\) +1 hazard")
        self.assertEqual(0, results["sanitizers-memory"]["figures"]["unclean"])
        self.assertEqual(1, results["sanitizers-threads"]["figures"]["unclean"])

    def test_measures_the_others_where_one_side_fails(self):
        _, output, results = self.run_parts("speed-resnet50")
        self.assertEqual({"resnet50_256.tutti": 300, "resnet50_256.eager": 150, "resnet50_256.ratio_eager": 2},
                         results["speed-resnet50"]["figures"])
        self.assertIn("compiled: PyTorch ended early: no compiler", output)
        (self.bundle / "bin/broken").touch()
        _, output, results = self.run_parts("speed-lenet", "ceilings")
        self.assertEqual({"lenet_64.eager": 150, "lenet_64.compiled": 200}, results["speed-lenet"]["figures"])
        self.assertIn("a broken trainer", output)
        self.assertEqual("ran", results["ceilings"]["outcome"])

    def test_notices_weights_that_an_option_changes(self):
        (self.bundle / "bin/biased").touch()
        _, output, results = self.run_parts("in-flight", "graphs", "exchange", "checkpoints")
        self.assertIn("exact changes bits after a resume", results["checkpoints"]["outcome"])
        self.assertIn("exact changes bits of lenet", results["exchange"]["outcome"])
        self.assertRegex(output, r"4 +ring,pat;allreduce:tree +bucket-mib 16 +16 +same")
        self.assertIn("--in-flight changes bits of lenet", results["in-flight"]["outcome"])
        self.assertEqual(1, results["in-flight"]["figures"]["digests_differ"])
        self.assertEqual("ran", results["graphs"]["outcome"])

    def test_measures_how_long_a_job_runs_after_a_rank_was_stopped(self):
        results = Results(self.root / "results.json")
        part = parts.Part("ranks", "", training.stopped_rank)
        with mock.patch.object(training, "STALL_SECONDS", 2), contextlib.redirect_stdout(io.StringIO()):
            with Session(self.options(), self.bundle) as session:
                parts.run(part, session, results)
        self.assertEqual("ran", results.parts["ranks"]["outcome"])
        self.assertIn("stopped_rank_seconds", results.parts["ranks"]["figures"])

    def test_keeps_the_results_of_parts_that_are_not_run_again(self):
        self.run_parts("ceilings")
        self.assertEqual({"ceilings", "versions"}, set(self.run_parts("versions")[2]))

    def test_ends_and_reports_a_program_that_takes_too_long(self):
        with Session(self.options("--limit", "2", "--rehearse"), self.bundle) as session:
            self.assertEqual(("time", "begun\n"), session.status_of(["bash", "-c", "echo begun; sleep 60"]))

    def test_lists_the_parts(self):
        with self.assertRaisesRegex(SystemExit, "no part is called 'sped'.*speed-lenet"):
            parts.choose(["sped"])
        self.assertEqual(list(speed.WORKLOADS), [part.name for part in parts.choose(["speed"])])


class Verdicts(unittest.TestCase):
    def of(self, text, records):
        return next(row[2:] for row in targets.results(records) if text in row[0])

    def test_distinguish_met_missed_and_never_run(self):
        text = "resnet50 at 224"
        for images_per_second, result in ((6499, "MISSED"), (6500, "met"), (9000, "met, stretch too")):
            figures = {"resnet50_256.tutti": images_per_second}
            self.assertEqual(result, self.of(text, {"speed-resnet50": record(figures)})[1])
        self.assertEqual(["-", "no figure"], self.of(text, {"speed-resnet50": record({})}))
        self.assertEqual(["-", "never run"], self.of(text, {}))
        self.assertEqual(["-", "never run"], self.of(text, {"speed-resnet50": record({"resnet50_256.tutti": 1}, True)}))

    def test_take_the_worst_figure_and_need_all(self):
        figures = {f"resnet18_28_{batch}.ratio_compiled": ratio for batch, ratio in ((256, 1.3), (512, 1.1))}
        records = {"speed-resnet18-28": record(figures)}
        self.assertEqual("no figure", self.of("resnet18-28: times compiled", records)[1])
        figures["resnet18_28_1024.ratio_compiled"] = 1.4
        self.assertEqual(["1.1", "MISSED"], self.of("resnet18-28: times compiled", records))

    def test_hold_small_figures_below_their_limit(self):
        figures = {f"{model}_loss_apart_{n}": 1e-6 for model in ("lenet", "resnet18") for n in (2, 4)}
        self.assertEqual("met", self.of("losses of the first steps", {"ranks": record(figures)})[1])
        figures["lenet_loss_apart_4"] = 2e-5
        self.assertEqual(["2e-05", "MISSED"], self.of("losses of the first steps", {"ranks": record(figures)}))

    def test_turn_images_per_second_into_time(self):
        figures = {"lenet_64.tutti": 1e6, "lenet_64.ratio_eager": 20, "lenet_64.ratio_compiled": 9}
        self.assertEqual(["60", "met"], self.of("ms per 60,000", {"speed-lenet": record(figures)}))
        self.assertEqual(["9", "met"], self.of("faster of PyTorch", {"speed-lenet": record(figures)}))


class StatusPage(Folder):
    def test_in_the_tree_is_generated_from_the_records(self):
        self.assertEqual(status.status_text(Results(status.RECORDS).parts), status.PAGE.read_text(encoding="utf-8"))

    def test_lists_parts_that_have_run_and_that_have_not(self):
        text = status.status_text({"ceilings": record({}), "tests": record({}, rehearsal=True)})
        self.assertIn("| ceilings | 2026-01-01 | G | 1 | c | ran |", text)
        self.assertIn("x\\|y", text)
        self.assertIn("- `tests`:", text.partition("## Has never run")[2])

    def test_keeps_the_newest_of_each_part(self):
        old, new = {"ceilings": record({"x": 1})}, {"ceilings": record({"x": 2}, when="2026-02-01"),
                                                    "tests": record({}, rehearsal=True)}
        self.assertEqual(new["ceilings"], status.merge(old, new)["ceilings"])
        self.assertEqual(new["ceilings"], status.merge(new, old)["ceilings"])
        self.assertNotIn("tests", status.merge(old, new))


class BundledTests(Folder):
    def setUp(self):
        super().setUp()
        self.build = self.root / "build"
        program(self.build / "tests/one_test", "")
        self.bundle = bundle.Bundle(self.build, self.root / "bundle")

    def test_run_programs_of_the_bundle(self):
        test = f"{self.build}/tests/one_test"
        self.assertEqual(["{bundle}/bin/mpirun", "-n", "2", "{bundle}/bin/one_test", "--x=1"],
                         [self.bundle.word(word) for word in ("/usr/bin/mpiexec", "-n", "2", test, "--x=1")])
        self.assertEqual("TUTTI_TEST={bundle}/bin/one_test", self.bundle.word(f"TUTTI_TEST={test}"))
        self.assertTrue((self.root / "bundle/bin/one_test").is_file())

    def test_have_to_be_built(self):
        with self.assertRaisesRegex(SystemExit, "other_test is not built"):
            self.bundle.word(f"{self.build}/tests/other_test")


class Numbers(unittest.TestCase):
    def test_keep_four_significant_digits(self):
        self.assertEqual(["95,000", "1.15", "12,346", "1e-05", "0.92", "time"],
                         [tables.number(value) for value in (95000, 1.15, 12345.6, 1e-5, 0.92, "time")])


if __name__ == "__main__":
    unittest.main()
