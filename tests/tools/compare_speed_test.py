"""Runs tools/peers/compare_speed.py with fake programs for the trainer and the Python that has torch."""

import json
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/peers/compare_speed.py"

FIGURES = '{"images_per_second": %s, "peak_resident_mib": 50, "first_step_seconds": 1, "libraries": "of %s"}'
TRAINER = f"""echo tutti >>$0.calls
for last; do :; done
echo '{FIGURES % (300, "ours")}' >$last"""
PYTHON = f"""[[ $1 != -c ]] || exit 0
if [[ $* == *compiled ]]; then COMPILED
else echo eager >>$(dirname $0)/trainer.calls; echo '{FIGURES % (150, "theirs")}'; fi"""


class CompareSpeed(Programs):
    def compare(self, compiled):
        command = [sys.executable, str(SCRIPT), "--rounds", "3", "--json", str(self.root / "all.json"),
                   "--trainer", self.program("trainer", TRAINER),
                   "--python", self.program("python", PYTHON.replace("COMPILED", compiled))]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def test_takes_ratios_to_the_faster_peer_in_an_order_that_turns(self):
        result = self.compare(f"echo compiled >>$(dirname $0)/trainer.calls; echo '{FIGURES % (200, 'theirs')}'")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("round by round: 1.500 (1.500-1.500)", result.stdout)
        self.assertIn("eager: of theirs", result.stdout)
        self.assertEqual("tutti eager compiled eager compiled tutti compiled tutti eager".split(),
                         (self.root / "trainer.calls").read_text(encoding="utf-8").split())
        results = json.loads((self.root / "all.json").read_text(encoding="utf-8"))
        self.assertEqual([1.5, 1.5, 1.5], results["ratios"])
        self.assertEqual(200, results["rounds"][2]["compiled"]["images_per_second"])

    def test_goes_on_with_eager_alone_when_nothing_can_be_compiled(self):
        result = self.compare("echo no compiler >&2; exit 1")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual(1, result.stdout.count("torch.compile fails"), result.stdout)
        self.assertIn("round by round: 2.000 (2.000-2.000)", result.stdout)

    def test_reports_how_to_get_a_python_with_torch(self):
        self.program("python", "exit 1")
        result = subprocess.run([sys.executable, str(SCRIPT), "--trainer", self.program("trainer", TRAINER), "--python",
                                 str(self.root / "python")], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(2, result.returncode)
        self.assertIn("pip install torch", result.stderr)


if __name__ == "__main__":
    unittest.main()
