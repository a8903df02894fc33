"""The evaluation of the benchmarks' JSON in tools/cluster/scaling-check."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "cluster" / "scaling-check"
LOADER = importlib.machinery.SourceFileLoader("scaling_check", str(SCRIPT))
SPEC = importlib.util.spec_from_loader("scaling_check", LOADER)
scaling_check = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(scaling_check)


def step(ranks, seconds):
    return {"exchange": "ring", "ranks": ranks, "step_seconds_median": seconds, "efficiency": 1 / seconds}


class ScalingCheck(unittest.TestCase):
    SCALING = {"results": [step(1, 1.0), step(2, 1.2), step(3, 2.0)],
               "forecast": {"inputs": {"compute": [{"input": 0.1, "stretches": [[0.4, 1], [0.5, 2]]}]},
                            "points": [{"exchange": "ring", "ranks": 2, "step_seconds": 1.2},
                                       {"exchange": "ring", "ranks": 3, "step_seconds": 1.5}]}}
    EXCHANGE = {"results": [{"exchange": "ring", "ranks": 2, "seconds_median": 0.5},
                            {"exchange": "ring", "ranks": 3, "seconds_median": 0.9}]}

    def test_compares_forecast_and_overlap_by_hosts(self):
        two, three = scaling_check.compare(self.SCALING, self.EXCHANGE)
        self.assertEqual((two["hosts"], two["fitted"], two["overlaps"]), (2, True, True))
        self.assertEqual((three["hosts"], three["fitted"], three["overlaps"]), (3, False, False))
        self.assertAlmostEqual(two["error"], 0)
        self.assertAlmostEqual(three["error"], -0.25)
        self.assertAlmostEqual(three["one_after_the_other"], 1.9)

    def test_prints_every_row(self):
        rows = [{"model": "lenet", "mbit": 100} | row for row in scaling_check.compare(self.SCALING, self.EXCHANGE)]
        lines = scaling_check.table(rows).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[1], r"lenet +100 +ring +2 +0.83 +1200.0 +1200.0 +0.0 +1500.0  \(fitted here\)")
        self.assertRegex(lines[2], r"lenet +100 +ring +3 +0.50 +2000.0 +1500.0 +-25.0 +1900.0$")


if __name__ == "__main__":
    unittest.main()
