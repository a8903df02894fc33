"""Runs tools/tutorials with fake programs for launcher and trainer, and with the trainer in $TUTTI_TRAINER."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "tutorials"
MPIRUN = """[[ $* != *--version ]] || { echo 'mpirun (Open MPI) 4.1.4'; exit; }
echo "mpirun $*" >>"$CALLS.whole"
while [[ $1 == --* ]]; do if [[ $1 == --bind-to ]]; then shift; fi; shift; done
echo "$2 ${*:4}" >>"$CALLS"
shift 2
exec "$@"
"""
# Prints two rows of an epoch, or of --steps. The second one is twice as fast, or more with --lucky. --ranks 16 adds a
# row that fails.
TRAINER = """[[ $1 != --version ]] || { echo 'tutti 0.1.0'; exit; }
for last; do :; done
for word; do [[ $before != --data ]] || data=$word; before=$word; done
if [[ $* == *--fail* ]]; then echo 'no such thing' >&2; exit 64; fi
ls "$data" 2>/dev/null | sed 's/^/data holds /' >>"$CALLS"
step=938 gain=2
if [[ $* == *--steps* ]]; then step=9; fi
if [[ $* == *--lucky* ]]; then gain=2.31; fi
row() { echo "{\\"options\\": {\\"ranks\\": $1, \\"model\\": \\"lenet\\"}, \\"ranks\\": $1, \\"state\\": \\"trained\\",
  \\"batch_size\\": 64, \\"lr\\": 0.3, \\"step\\": $step, \\"test_acc\\": $3, \\"seconds\\": 2, \\"speed_up\\": $4,
  \\"images_per_second\\": $2, \\"train_images\\": 60000, \\"oversubscribed\\": false,
  \\"digest\\": \\"000000000000000$1\\"}"; }
echo "{\\"sweep\\": [\\"batch-size\\", \\"ranks\\"], \\"libraries\\": \\"all\\", \\"rows\\": [$(row 1 10000 0.91 1),
  $(row 2 20000 null $gain), {\\"options\\": {\\"ranks\\": 16}, \\"ranks\\": 16,
  \\"state\\": \\"failed\\", \\"reason\\": \\"too many\\"}]}" >"$last"
"""


class Tutorials(Programs):
    def setUp(self):
        super().setUp()
        self.calls = self.root / "calls"
        self.calls.touch()

    def tool(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if key != "TUTTI_DATA"}
        return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False,
                              env=environment | {"CALLS": str(self.calls)}, timeout=240)

    def run_with_programs(self, *arguments):
        return self.tool("--trainer", self.program("trainer", TRAINER), "--mpiexec", self.program("mpirun", MPIRUN),
                         *arguments)


class WithPrograms(Tutorials):
    def test_prints_reported_and_measured_figures_and_the_source(self):
        result = self.run_with_programs("--table", "mnist", "--json", str(self.root / "all.json"))
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertRegex(result.stdout, r"^Here: .*, \d+ cores; tutti 0\.1\.0\. ")
        self.assertIn("tutorial: a lab on MXNet Gluon with several GPUs", result.stdout)
        self.assertIn("data: glyphs in place of mnist, which is not there", result.stdout)
        self.assertRegex(result.stdout,
                         r"\n +1 +64 +0\.3 +0\.9866 +2\.24 +1\.00  \| 0\.9100 +6\.00 +10000 +1\.00  0+1\n")
        self.assertRegex(result.stdout, r"\n +2 +64 +0\.3 +0\.9873 +2\.34 +0\.96  \| - +3\.00 +20000 +2\.00  0+2\n")
        self.assertRegex(result.stdout, r"\n +16 .*\| failed: too many\n")
        if len(os.sched_getaffinity(0)) < 16:
            self.assertRegex(result.stdout, r"up to 16 ranks share \d+ cores")
        written = json.loads((self.root / "all.json").read_text(encoding="utf-8"))["tables"]["mnist"]
        self.assertEqual("0.9866", written["tutorial"]["rows"][0]["test_acc"])
        self.assertEqual(20000, written["rows"][1]["images_per_second"])

    def test_trains_less_with_quick_and_options_of_the_user_take_precedence(self):
        self.run_with_programs("--quick", "--table", "mnist,in-flight", "--", "--lr", "0.01")
        first, second = self.calls.read_text(encoding="utf-8").splitlines()
        self.assertIn("2 sweep --model lenet --ranks 1,2 --batch-size 64,128 --together ranks,batch-size --lr 0.01 "
                      "--momentum 0 --epochs 1 --data glyphs", first)
        self.assertIn("1 sweep --model lenet --batch-size 256 --augment pad-crop-flip --in-flight 0,1,2 --epochs 1",
                      second)

    def test_marks_extrapolated_figures_and_explains_the_mark_once(self):
        result = self.run_with_programs("--quick", "--table", "fashion-mnist-resnet18,mnist,cifar-tiny", "--",
                                        "--lucky", "1")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        first, second, third = result.stdout.split("tutorial: ")[1:]
        self.assertRegex(first, r"\| 0\.9100 +~6\.00 +10000 +1\.00 +0+1\n")
        self.assertRegex(first, r"\| - +~3\.00 +20000 +2\.31\? +0+2\n")
        self.assertIn("\n  ~ an epoch's time, extrapolated from fewer steps\n"
                      "  ? a speed-up above the number of ranks: the machine was busy, or more data fit into "
                      "the caches\n", first)
        self.assertRegex(second, r"\| 0\.9100 +6\.00 ")
        self.assertRegex(third, r"\| 0\.9100 +~6\.00 ")
        self.assertNotIn("fewer steps", second + third)
        self.assertNotIn("busy", second + third)

    def test_takes_a_launcher_with_options(self):
        launcher = self.program("mpirun", MPIRUN)
        result = self.tool("--trainer", self.program("trainer", TRAINER), "--mpiexec",
                           f"'{launcher}' --oversubscribe --bind-to core", "--table", "mnist")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        called = pathlib.Path(f"{self.calls}.whole").read_text(encoding="utf-8")
        self.assertRegex(called, r"^mpirun --oversubscribe --bind-to core (--allow-run-as-root )?-np 2 ")

    def test_makes_the_tiny_set_of_the_first_images(self):
        folder = self.root / "sets" / "cifar-10"
        folder.mkdir(parents=True)
        for name in ("data_batch_1.bin.gz", "test_batch_some.bin.gz"):
            with gzip.open(folder / name, "wb") as file:
                file.write(bytes(3073 * 900))
        result = self.run_with_programs("--data", str(folder.parent), "--table", "cifar-tiny")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("data: cifar-10, its first 800 training and 200 test images", result.stdout)
        self.assertIn("data holds data_batch_1.bin\ndata holds test_batch.bin\n",
                      self.calls.read_text(encoding="utf-8"))
        self.assertRegex(result.stdout, r"\n +1 +64 +0\.3 +- +38\.2 +-  \| ")

    def test_goes_on_after_a_table_that_fails(self):
        result = self.run_with_programs("--table", "mnist", "--table", "in-flight", "--json",
                                        str(self.root / "all.json"), "--", "--fail")
        self.assertEqual(1, result.returncode)
        self.assertRegex(result.stderr, r"(?s)mnist: .* ended with 64: no such thing\n.*in-flight: ")
        tables = json.loads((self.root / "all.json").read_text(encoding="utf-8"))["tables"]
        self.assertIn("no such thing", tables["in-flight"]["failed"])

    def test_refuses_unknown_names(self):
        for arguments, words in ((["--table", "imagenet"], "no table is called imagenet: there are mnist, "),
                                 (["--data", "/none"], "--data /none: there is no such folder"),
                                 (["--trainer", "/none/it"], "there is no program /none/it: tools/demo builds it"),
                                 (["--mpiexec", "/none/mpirun --oversubscribe"], "cannot start '/none/mpirun --over"),
                                 (["--mpiexec", "'a"], "cannot start ''a': No closing quotation; --mpiexec names")):
            result = self.run_with_programs(*arguments)
            self.assertEqual(2, result.returncode)
            self.assertIn(words, result.stderr)


class WithTrainer(Tutorials):
    def run_tables(self, *arguments):
        result = self.tool("--trainer", os.environ["TUTTI_TRAINER"], "--mpiexec", os.environ["TUTTI_MPIEXEC"], "--json",
                           str(self.root / "all.json"), *arguments)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        return json.loads((self.root / "all.json").read_text(encoding="utf-8"))["tables"], result.stdout


class WithTheTrainer(WithTrainer):
    def test_finds_the_same_bits_with_any_number_of_steps_in_flight(self):
        tables, text = self.run_tables("--table", "in-flight", "--", "--steps", "3")
        rows = tables["in-flight"]["rows"]
        self.assertEqual([0, 1, 2], [row["options"]["in-flight"] for row in rows])
        self.assertEqual(1, len({row["digest"] for row in rows}), text)
        self.assertEqual(20000 / rows[1]["images_per_second"], rows[1]["epoch_seconds"])

    def test_slows_one_rank_down_and_reports_whether_it_is_worth_it(self):
        tables, text = self.run_tables("--table", "straggler", "--", "--steps", "12", "--model", "linear")
        rows = tables["straggler"]["rows"]
        self.assertEqual(["-", "100 %", "50 %", "50 %"], [row["options"]["rank 1"] for row in rows])
        self.assertEqual(1, len({row["digest"] for row in rows}), text)
        self.assertIn("times the fast one alone", text)


class OnManyRanks(WithTrainer):
    def test_finds_the_same_bits_on_1_to_16_ranks(self):
        tables, text = self.run_tables("--table", "16-ranks", "--", "--steps", "2", "--model", "linear")
        rows = tables["16-ranks"]["rows"]
        self.assertEqual([1, 2, 4, 8, 16], [row["ranks"] for row in rows])
        self.assertEqual(1, len({row["digest"] for row in rows}), text)


if __name__ == "__main__":
    unittest.main()
