"""Rehearses tools/gpu-day with fake programs for the trainer, mpirun and the tests, also with a fault in each part."""

import contextlib
import io
import json
import os
import pathlib
import sys
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))

from gpu_day import bundle, checks, command_line, parts, speed, status, targets
from gpu_day.session import Results, Session
from peers import tables
from programs import Programs

# Has the output of the trainer, with a fault if the file $FAULT names one: "broken"; "bits" that depend on options;
# "values", losses and accuracies, that depend on the device and on other ranks; "nan", an accuracy.
TRAINER = f"#!{sys.executable} -IS\n" """import json, os, sys
words = sys.argv[1:]
value = lambda name, other: words[words.index(name) + 1] if name in words else other
fault = open(os.environ["FAULT"]).read()
if fault == "broken": sys.exit("a broken trainer")
if "bench" in words:
    json.dump({"images_per_second": 300, "libraries": "ours", "stall_of_step": 0.5, "bandwidth_of_plain": 0.5,
               "together_over_compute": 1, "core_images_per_second": 5, "rank_images_per_second": 9,
               "results": [{"what": "input", "readers": 1, "images_per_second": 9}]},
              open(value("--json", os.devnull), "w"))
    sys.exit()
if "--out" not in words: sys.exit()
out = value("--out", "")
os.makedirs(out, exist_ok=True)
error = (("--comm" in words) + (value("--device", "") == "cpu")) / 10 if fault == "values" else 0
records = [{"event": "step", "step": step, "train_loss": 2.5 / step + error} for step in (1, 2, 20)]
options = ("--in-flight", "--record-steps", "--bucket-mib", "--comm")
digest = "".join(value(name, "") for name in options) if fault == "bits" else "0"
if fault == "instructions" and "TUTTI_MAX_CPU_ISA" not in os.environ: sys.exit("illegal instruction")
records += [{"event": "digest", "step": 1, "weights": digest}] if "--digest-every" in words else []
accuracy = float("nan") if fault == "nan" else 0.95 - error
records += [{"event": "epoch", "epoch": 1, "train_loss": 1, "train_acc": 0.5, "test_acc": accuracy, "seconds": 2,
             "images_per_second": 100, "digest": digest}, {"event": "time", "data": 0.1, "seconds": 2}]
with open(out + "/metrics.jsonl", "w") as file:
    for record in records: file.write(json.dumps(record, separators=(",", ":")) + "\\n")
if value("--epochs", "1") == "100000":
    with open(out + "/exit.json", "w") as file: json.dump({"status": 86}, file)
    __import__("time").sleep(60)
"""
# Ends the ranks when one of them is stopped.
MPIRUN = """#!/bin/bash
status=0
for ((rank = 0; rank < $2; ++rank)); do "${@:3}" & ranks+=($!); done
while [[ $(jobs -pr) ]]; do
  for rank in "${ranks[@]}"; do [[ $(<"/proc/$rank/stat") != *") T "* ]] || kill -KILL "${ranks[@]}"; done
  sleep 0.02
done 2>/dev/null
for rank in "${ranks[@]}"; do wait "$rank" || status=$?; done
exit "$status"
"""
TESTS = {"backend.cuda_layers": """[[ $(<"$FAULT") != test ]] || { echo '[  FAILED  ] Suite.DoesThis'; exit 1; }
echo '[       OK ] Suite.DoesThat'""",
         "comm.cuda_slow": """[[ $(<"$FAULT") == slow && $COLOUR == blue && -z $TUTTI_STANDIN_DEVICES ]] && sleep 60
[[ $(<"$FAULT") != comm ]]"""}
TOOL = Session.tool
# In place of this stand-in for a program of the machine.
UNCLEAN = "print('========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'); sys.exit(9)"
NO_KERNEL = """print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')"""
NO_COMPILER = """print('{}', flush=True)
for line in sys.stdin:
    print('{"images_per_second": 200}' if line == 'eager\\n' else '{"error": "no compiler"}', flush=True)"""
# By part: what must make it fail, of the trainer, a test or a program of the machine.
FAULTS = {**{part.name: "broken" for part in parts.PARTS}, "ceilings": ("python", "sys.exit('no PyTorch')"),
          **dict.fromkeys(("tests-backend", "processor-tests"), "test"), "tests-nccl": "comm",
          **dict.fromkeys(speed.WORKLOADS, ("python", NO_COMPILER)), "convergence": "nan",
          **dict.fromkeys(("ranks", "accuracies", "exchange-others", "checkpoints-lenet", "checkpoints-resnet18"),
                          "values"),
          **dict.fromkeys(("exchange", "in-flight", "graphs"), "bits"), "processor-digests": "instructions",
          "profile": ("ncu", NO_KERNEL),
          **dict.fromkeys(checks.SANITIZERS, ("compute-sanitizer", UNCLEAN))}


def record(figures, rehearsal=False, when="2026-01-01"):
    return {"when": when, "gpu": "G", "driver": "1", "commit": "c", "rehearsal": rehearsal, "outcome": "ran",
            "figures": figures, "tables": [{"title": "T", "header": ["a", "b"], "rows": [["x|y", "1"]]}]}


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Rehearsal(Programs):
    def setUp(self):
        super().setUp()
        self.bundle = self.root / "bundle"
        tests = []
        for name, text in (("trainer", TRAINER), ("mpirun", MPIRUN), *((name, f"#!/bin/bash\n{script}\n")
                                                                       for name, script in TESTS.items())):
            program(self.bundle / "bin" / name, text)
            tests += [{"name": name, "command": [f"{{bundle}}/bin/{name}", "--gtest_filter=*"],
                       "environment": ["COLOUR=blue"], "seconds": 1 if "slow" in name else 60}] if name in TESTS else []
        for folder in ("lib", "standin"):
            program(self.bundle / folder / bundle.CUDA_CODE, folder)
        facts = {"commit": "c0ffee", "needs": {"cuda": []}, "tests": tests,
                 "processor_tests": ["backend.cuda_layers"]}
        (self.bundle / "bundle.json").write_text(json.dumps(facts), encoding="utf-8")
        self.plant("")
        variables = {"FAULT": str(self.root / "fault"), "PATH": f"{self.bundle}/bin:{os.environ['PATH']}"}
        environment = mock.patch.dict(os.environ, variables)
        environment.start()
        self.addCleanup(environment.stop)
        for name in ("TUTTI_PYTHON", "TUTTI_MAX_CPU_ISA"):
            os.environ.pop(name, None)

    def plant(self, fault):
        """A fault by its name, or the name of a program and its code in place of the stand-in's."""
        name, code = fault if isinstance(fault, tuple) else (fault, None)
        (self.root / "fault").write_text(name, encoding="utf-8")
        path = f"import sys\nsys.path.insert(0, {str(TOOLS)!r})\nfrom gpu_day import stand_ins\nwords = sys.argv[1:]"
        planted = mock.patch.object(Session, "tool", lambda session, tool: [
            sys.executable, "-c", f"{path}\n{code}"] if code and tool == name else TOOL(session, tool))
        planted.start()
        self.addCleanup(planted.stop)

    def run_parts(self, *names):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = command_line.main(["run", "--rehearse", "--bundle", str(self.bundle), "--limit", "1000",
                                      "--out", str(self.root / "out"), *names])
        return code, output.getvalue(), json.loads((self.root / "out/results.json").read_text(encoding="utf-8"))

    def log(self):
        return (self.root / "out/gpu-day.log").read_text(encoding="utf-8")

    def test_runs_every_part_and_does_not_count_as_a_run(self):
        code, output, results = self.run_parts()
        self.assertEqual({part.name: "ran" for part in parts.PARTS},
                         {name: one["outcome"] for name, one in results.items()})
        self.assertEqual(0, code)
        self.assertLess(len(output), 12_000)
        self.assertIn("Nothing has ever run on a GPU", (self.root / "out/GPU-STATUS.md").read_text(encoding="utf-8"))
        self.assertLessEqual(len(list((self.root / "out").iterdir())), 8)
        self.assertEqual("lib", (self.bundle / "lib" / bundle.CUDA_CODE).read_text(encoding="utf-8"))
        self.assertEqual({"cases_passed": 2, "failed": 0}, results["tests-backend"]["figures"])
        self.assertEqual(1.5, results["speed-lenet-64"]["figures"]["lenet_64.ratio_compiled"])
        self.assertAlmostEqual(0.0045, results["profile"]["figures"]["lenet_64_kernel_ms"])
        self.assertIn("batch norms", str(results["profile"]["tables"][0]["rows"]))
        self.assertIn("stopped_rank_seconds", results["stopped-rank"]["figures"])

    def test_ends_with_1_if_any_part_has_a_fault(self):
        self.assertEqual({part.name for part in parts.PARTS}, set(FAULTS))
        for part, fault in FAULTS.items():
            with self.subTest(part):
                self.plant(fault)
                code, _, results = self.run_parts(part)
                self.assertEqual(1, code)
                self.assertRegex(results[part]["outcome"], "^failed: ")

    def test_names_what_is_wrong(self):
        self.plant("values")
        _, output, results = self.run_parts("ranks", "accuracies", "checkpoints", "exchange-others")
        self.assertIn("losses of the first steps apart, relative ≤ 1e-05: 0.8, 0.8", results["ranks"]["outcome"])
        self.assertIn("final accuracy apart ≤ 0.01: 0.1, 0.1", results["accuracies"]["outcome"])
        self.assertIn("next losses apart, relative ≤ 0.0001: ", results["checkpoints-lenet"]["outcome"])
        self.assertIn("sharded and central on 2 and 4 ranks", results["exchange-others"]["outcome"])
        self.plant("bits")
        _, output, results = self.run_parts("in-flight", "exchange", "checkpoints-lenet")
        for part in ("in-flight", "exchange", "checkpoints-lenet"):
            self.assertEqual(1, results[part]["figures"]["digests_differ"])
        self.assertRegex(self.log(), r"4 +ring,pat;allreduce:tree +bucket-mib 16 +16nccl +DIFFERS")

    def test_gives_every_test_its_result(self):
        self.plant("test")
        self.assertIn("FAILED (1), 0: Suite.DoesThis", self.run_parts("tests-backend")[1])
        self.plant("slow")
        self.assertIn("comm.cuda_slow, FAILED (time)", self.run_parts("tests-nccl")[1])
        self.plant(("compute-sanitizer", UNCLEAN))
        self.assertRegex(self.run_parts("sanitizers")[1], r"racecheck lenet bf16, NOT CLEAN \(9\), 1 hazard")

    def test_measures_the_others_where_one_side_fails(self):
        self.plant(("python", NO_COMPILER))
        _, output, results = self.run_parts("speed-lenet-64")
        self.assertEqual({"lenet_64.tutti": 300, "lenet_64.eager": 200, "lenet_64.ratio_eager": 1.5},
                         results["speed-lenet-64"]["figures"])
        self.assertIn("compiled: PyTorch: no compiler", output)
        self.plant("broken")
        _, output, results = self.run_parts("speed-lenet-64", "ceilings")
        self.assertEqual({f"lenet_64.{way}": 200 for way in speed.WAYS}, results["speed-lenet-64"]["figures"])
        self.assertIn("a broken trainer", output)
        self.assertEqual("ran", results["ceilings"]["outcome"])

    def test_keeps_the_results_of_parts_that_are_not_run_again(self):
        self.run_parts("ceilings")
        self.assertEqual({"ceilings", "versions"}, set(self.run_parts("versions")[2]))

    def test_adds_to_earlier_results_and_does_not_repeat_what_has_run(self):
        of_a_gpu = {part.name: record({}) | {"commit": "c0ffee"} for part in parts.PARTS if part.name != "versions"}
        of_a_gpu |= {"ceilings": record({}) | {"commit": "another"}}
        earlier = self.root / "earlier"
        earlier.mkdir()
        (earlier / "results.json").write_text(json.dumps(of_a_gpu), encoding="utf-8")
        (earlier / "plans.txt").write_text("plans", encoding="utf-8")
        code, _, results = self.run_parts("--earlier", str(earlier))
        self.assertEqual(0, code)
        self.assertEqual({"versions", "ceilings"}, {name for name, one in results.items() if one["rehearsal"]})
        self.assertEqual({part.name for part in parts.PARTS}, set(results))
        self.assertEqual("plans", (self.root / "out/plans.txt").read_text(encoding="utf-8"))

    def test_leaves_out_what_does_not_fit_into_the_time(self):
        def full(_, real, rehearsed):
            return real if rehearsed == 0 else rehearsed

        with mock.patch.object(Session, "full", full):
            code, output, results = self.run_parts("--seconds", "20", "ceilings", "versions", "smoke")
        self.assertEqual({"versions"}, set(results) - {"ceilings"})
        self.assertIn("no time was left for: smoke", output)
        self.assertEqual(0, code)

    def test_ends_and_reports_a_program_that_takes_too_long(self):
        options = command_line.parse(["run", "--bundle", str(self.bundle), "--out", str(self.root), "--limit", "2",
                                      "--rehearse"])
        with contextlib.redirect_stdout(io.StringIO()), Session(options, self.bundle) as session:
            self.assertEqual(("time", "begun\n"), session.status_of(["bash", "-c", "echo begun; sleep 60"]))

    def test_lists_the_parts(self):
        with self.assertRaisesRegex(SystemExit, "no part is called 'sped'.*speed-lenet-64"):
            parts.choose(["sped"])
        self.assertEqual(set(speed.WORKLOADS), {part.name for part in parts.choose(["speed"])})


class Verdicts(unittest.TestCase):
    def of(self, text, records):
        return next(row[2:] for row in targets.results(records) if text in row[0])

    def test_distinguish_met_missed_and_never_run(self):
        text = "resnet50 at 224, data on the device"
        for images_per_second, result in ((6499, "MISSED"), (6500, "met"), (9000, "met, stretch too")):
            figures = {"resnet50_256.tutti": images_per_second}
            self.assertEqual(result, self.of(text, {"speed-resnet50": record(figures)})[1])
        self.assertEqual(["-", "no figure"], self.of(text, {"speed-resnet50": record({})}))
        self.assertEqual(["-", "never run"], self.of(text, {}))
        self.assertEqual(["-", "never run"], self.of(text, {"speed-resnet50": record({"resnet50_256.tutti": 1}, True)}))

    def test_take_the_worst_figure_and_need_all(self):
        text = "batch 256: times PyTorch's best of eager"
        figures = {f"resnet18_28_256.ratio_{way}": ratio for way, ratio in (("eager", 3.2), ("graph", 1.1))}
        records = {"speed-resnet18-256": record(figures)}
        self.assertEqual("no figure", self.of(text, records)[1])
        figures["resnet18_28_256.ratio_compiled"] = 3.4
        self.assertEqual(["1.1", "MISSED"], self.of(text, records))

    def test_hold_small_figures_below_their_limit(self):
        figures = {f"{model}_loss_apart_{n}": 1e-6 for model in ("lenet", "resnet18") for n in (2, 4)}
        self.assertEqual("met", self.of("losses of the first steps", {"ranks": record(figures)})[1])
        figures["lenet_loss_apart_4"] = 2e-5
        self.assertEqual(["2e-05", "MISSED"], self.of("losses of the first steps", {"ranks": record(figures)}))


class StatusPage(Programs):
    def test_in_the_tree_is_generated_from_the_records(self):
        self.assertEqual(status.status_text(Results(status.RECORDS).parts), status.PAGE.read_text(encoding="utf-8"))

    def test_lists_parts_that_have_run_and_that_have_not(self):
        text = status.status_text({"ceilings": record({}), "smoke": record({}, rehearsal=True)})
        self.assertIn("| ceilings | 2026-01-01 | G | 1 | c | ran |", text)
        self.assertIn("x\\|y", text)
        self.assertIn("- `smoke`:", text.partition("## Has never run")[2])

    def test_keeps_the_newest_of_each_part(self):
        old, new = {"ceilings": record({"x": 1})}, {"ceilings": record({"x": 2}, when="2026-02-01"),
                                                    "smoke": record({}, rehearsal=True)}
        self.assertEqual(new["ceilings"], status.merge(old, new)["ceilings"])
        self.assertEqual(new["ceilings"], status.merge(new, old)["ceilings"])
        self.assertNotIn("smoke", status.merge(old, new))


class BundledTests(Programs):
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
