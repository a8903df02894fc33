"""Runs tools/peers/compare_scaling.py with fake programs for trainer, launcher and the Python that has torch."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/peers/compare_scaling.py"

# Each records its command line, and single processes also their cores.
TRAINER = """echo "tutti ${ALONG:-single}:$(grep -oP 'Cpus_allowed_list:\\s*\\K.*' /proc/self/status) $*" >>$0.calls
speed=100; [[ ! $ALONG ]] || speed=198
for last; do :; done
echo "{\\"images_per_second\\": $speed, \\"libraries\\": \\"ours\\"}" >$last"""
PYTHON = """[[ $1 != -c ]] || exit 0
echo "pytorch $*" >>$(dirname $0)/trainer.calls
speed=50; [[ $* != *--init-method* ]] || speed=40
echo "a warning"; echo "{\\"images_per_second\\": $speed, \\"libraries\\": \\"theirs\\"}" """


class CompareScaling(Programs):
    def setUp(self):
        super().setUp()
        self.program("launcher", 'shift; ALONG=job exec "$@"')

    def compare(self, *arguments, python=PYTHON):
        command = [sys.executable, str(SCRIPT), "--launcher", f"{self.root}/launcher {{ranks}}",
                   "--trainer", self.program("trainer", TRAINER), "--python", self.program("python", python),
                   "--json", str(self.root / "all.json"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def calls(self):
        return (self.root / "trainer.calls").read_text(encoding="utf-8").splitlines()

    def test_compares_a_job_with_concurrent_single_processes_and_with_one_alone(self):
        result = self.compare("--rounds", "2", "--case", "lenet:fp32:7")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        case, = json.loads((self.root / "all.json").read_text(encoding="utf-8"))["results"]
        self.assertEqual({"tutti": "ours", "pytorch": "theirs"}, case["libraries"])
        self.assertEqual({"tutti together": 198, "tutti apart": 200, "tutti alone": 100, "pytorch together": 80,
                          "pytorch apart": 100, "pytorch alone": 50}, case["rounds"][1])
        self.assertEqual(0.99, case["summary"]["tutti"]["efficiency_apart"]["median"])
        self.assertEqual(0.8, case["summary"]["pytorch"]["efficiency_alone"]["least"])
        self.assertRegex(result.stdout, r"tutti +198.0 .* 0.990 \(0.990-0.990\) +0.990")
        self.assertIn("round by round: together 2.475 (2.475-2.475), efficiency 1.237", result.stdout)

    def test_gives_every_rank_the_same_batch_and_every_single_process_its_own_core(self):
        self.assertEqual(0, self.compare("--rounds", "1", "--case", "lenet:bf16:7", "--batch", "8").returncode)
        ours = [line for line in self.calls() if line.startswith("tutti")]
        first, second = sorted(os.sched_getaffinity(0))[:2]
        self.assertEqual([f"single:{first}", f"single:{first}", f"single:{second}"],
                         sorted(line.split()[1] for line in ours if "single" in line))
        job, = (line for line in ours if "job" in line)
        self.assertIn("--batch-size 16 ", job)
        self.assertIn("--precision bf16 --threads 1 --warmup-steps 3 --timed-steps 7 ", job)
        self.assertTrue(all("--batch-size 8 " in line for line in ours if "single" in line), ours)
        joined = [line.rpartition("?")[2] for line in self.calls() if "--init-method" in line]
        self.assertEqual(["world_size=2&rank=0", "world_size=2&rank=1"], sorted(joined))

    def test_takes_turns_that_change_from_round_to_round(self):
        self.assertEqual(0, self.compare("--rounds", "2", "--case", "lenet:fp32:7").returncode)
        sides = [line.split()[0] for line in self.calls()]
        job, pair, one = (["tutti"], ["pytorch"] * 2), (["tutti"] * 2, ["pytorch"] * 2), (["tutti"], ["pytorch"])
        turns = [*job, *pair, *one]
        self.assertEqual(sum(turns + turns[1:] + turns[:1], []), sides)

    def test_ends_when_one_of_the_processes_fails(self):
        result = self.compare("--case", "lenet:fp32:7", python="[[ $1 != -c ]] || exit 0\necho no memory >&2; exit 3")
        self.assertEqual(1, result.returncode)
        self.assertIn("lenet fp32: pytorch together ended with 3: no memory", result.stderr)


if __name__ == "__main__":
    unittest.main()
