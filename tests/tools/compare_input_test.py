"""Runs tools/peers/compare_input.py with fake programs for the trainer and the Python that has torch."""

import json
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/peers/compare_input.py"

TRAINER = """echo tutti >>$0.calls
for last; do :; done
echo '{"results": [{"what": "input", "readers": 1, "images_per_second": 300},
                   {"what": "input", "readers": 2, "images_per_second": 590},
                   {"what": "compute", "readers": 0, "images_per_second": 7}]}' >$last"""
PYTHON = """[[ $1 != -c ]] || exit 0
case $* in
  *photographs.py*) echo "$*" >$0.written ;;
  *pillow) echo pillow >>$(dirname $0)/trainer.calls; echo '{"images_per_second": 100}' ;;
  *) echo tensor >>$(dirname $0)/trainer.calls; echo '{"images_per_second": 150}' ;;
esac"""


class CompareInput(Programs):
    def test_takes_ratios_to_the_faster_peer_in_an_order_that_turns(self):
        command = [sys.executable, str(SCRIPT), "photos", "--photographs", "20", "--rounds", "2", "--readers", "1,2",
                   "--json", str(self.root / "all.json"), "--trainer", self.program("trainer", TRAINER),
                   "--python", self.program("python", PYTHON)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("1 readers, median (min-max) of 2 rounds, images/s: tutti 300 (300-300), pillow 100 (100-100), "
                      "tensor 150 (150-150); tutti / the faster peer 2.00 (2.00-2.00)", result.stdout)
        self.assertIn("tutti 590 (590-590)", result.stdout)
        self.assertEqual(("tutti pillow tensor pillow tensor tutti " * 2).split(),
                         (self.root / "trainer.calls").read_text(encoding="utf-8").split())
        self.assertIn("photos --photographs 20", (self.root / "python.written").read_text(encoding="utf-8"))
        rounds = json.loads((self.root / "all.json").read_text(encoding="utf-8"))["rounds"]
        self.assertEqual(590, rounds["2"][1]["tutti"])


if __name__ == "__main__":
    unittest.main()
