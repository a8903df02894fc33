"""Runs tools/peers/measure and tools/peers/compare_sums with fake programs for all that they start."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/peers"))
import measured_rows  # noqa: E402

RESULTS = '"results": [{"algorithm": "auto", "gigabytes_per_second": 8, "seconds_median": 1, "images_per_second": 70}]'
STEP = '{"images_per_second": %s, "peak_resident_mib": 450, "first_step_seconds": 0.5, ' \
       '"step_seconds_median": 0.2, "step_seconds": [0.2], "libraries": "of %s", ' + RESULTS + "}"
TRAINER = f"""for last; do :; done
echo '{STEP % (300, "ours")}' >$last"""
PYTHON = f"""[[ $1 != -c ]] || exit 0
if [[ $* == *compiled* ]]; then echo '{STEP % (200, "theirs")}'; else echo '{STEP % (150, "theirs")}'; fi"""
PAGE = f"# Title\n{measured_rows.BEGIN}\nold\n{measured_rows.END}\nrest\n"


def results(measurements):
    return {"date": "2030-01-02", "machine": {"processor": "A processor", "cores": 2, "memory_gib": 8},
            "libraries": {"tutti": "tutti 1"}, "measurements": measurements}


def measurement(*rounds, note="", others=0.0):
    return {"rounds": list(rounds), "note": note, "cores_used_by_others": others}


class Tools(Programs):
    def run_tool(self, name, *arguments):
        environment = os.environ | {"PATH": f"{self.root}:{os.environ['PATH']}", "CXX": "true"}
        return subprocess.run([sys.executable, str(ROOT / "tools/peers" / name), *arguments], capture_output=True,
                              env=environment, text=True, check=False, timeout=60)


class Measure(Tools):
    def measure(self, *arguments, python=PYTHON):
        (self.root / "page.md").write_text(PAGE, encoding="utf-8")
        return self.run_tool("measure", "--trainer", self.program("trainer", TRAINER), "--python",
                             self.program("python", python), "--json", str(self.root / "all.json"), "--page-file",
                             str(self.root / "page.md"), *arguments)

    def test_prints_figures_and_requirements_and_saves_every_round(self):
        result = self.measure("--rounds", "2", "--only", "lenet-fp32")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertRegex(result.stdout, r"lenet fp32.* 300\.0 +200\.0 +1\.50 \(1\.50-1\.50\) +>= 1\.30 .* must\n")
        self.assertRegex(result.stdout, r"minus one step, lenet fp32, s +0\.30 \(0\.30-0\.30\) +0\.30 .* +must\n")
        self.assertRegex(result.stdout, r"resnet18 fp32, images/s, vs PyTorch .* not measured\n")
        written = json.loads((self.root / "all.json").read_text(encoding="utf-8"))
        self.assertEqual(200, written["measurements"]["lenet-fp32"]["rounds"][1]["compiled"]["images_per_second"])
        self.assertEqual({"tutti": "of ours", "pytorch": "of theirs"}, written["libraries"])
        self.assertEqual(PAGE, (self.root / "page.md").read_text(encoding="utf-8"))

    def test_measures_every_row(self):
        self.program("mpirun", 'while [[ $1 != */trainer ]]; do shift; done; exec "$@"')
        result = self.measure("--quick", "--page")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("all-reduce of 44.7 MB over 2 ranks, GB/s, vs MPI_Allreduce | 8.00 |",
                      (self.root / "page.md").read_text(encoding="utf-8"))

    def test_measures_itself_and_reports_how_to_get_a_missing_peer(self):
        result = self.measure("--quick", "--only", "lenet-fp32", python="exit 1")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertRegex(result.stdout, r"lenet fp32, images/s, vs PyTorch +300\.0 +- .* not measured\n")
        self.assertRegex(result.stdout, r"lenet-fp32: no PyTorch in \S+: .*pip install torch")

    def test_goes_on_without_a_peer_that_fails(self):
        result = self.measure("--rounds", "2", "--only", "lenet-fp32",
                              python=f"[[ $* != *compiled* ]] || {{ echo why >&2; exit 1; }}\n{PYTHON}")
        self.assertRegex(result.stdout, r"lenet fp32.* 300\.0 +150\.0 +2\.00 .* stretch\n")
        self.assertIn("lenet-fp32: without compiled, which failed: compiled ended with 1: why", result.stdout)

    def test_writes_the_page_from_figures_that_are_there(self):
        figures = self.root / "figures.json"
        rounds = [{"auto": {"gigabytes_per_second": fast}, "blocking": {"gigabytes_per_second": 2.0}}
                  for fast in (6.0, 8.0, 10.0)]
        figures.write_text(json.dumps(results({"sum": measurement(*rounds, others=0.5)})), encoding="utf-8")
        self.assertEqual(0, self.measure("--from", str(figures), "--page").returncode)
        page = (self.root / "page.md").read_text(encoding="utf-8")
        self.assertTrue(page.startswith(f"# Title\n{measured_rows.BEGIN}\nWritten by `tools/peers/measure` on 2030"))
        self.assertTrue(page.endswith(f"|\n{measured_rows.END}\nrest\n"), page)
        self.assertIn("vs MPI_Allreduce | 8.00 | 2.00 | 4.00 (3.00-5.00) |", page)
        self.assertRegex(page.replace("\n", " "), "Other programs used up to 0.5 cores during the measurement")

    def test_refuses_unknown_names(self):
        result = self.measure("--only", "resnet")
        self.assertEqual(2, result.returncode)
        self.assertIn("nothing is called resnet", result.stderr)

    def test_finds_its_marks_in_the_documentation(self):
        page = (ROOT / "docs/measuring.md").read_text(encoding="utf-8")
        self.assertIn("\nnew figures\n", measured_rows.with_section(page, "new figures"))
        with self.assertRaises(ValueError):
            measured_rows.with_section("# Title\n", "new figures")


# Ours take 1 ms, the library 4, a ring 2. The component that is requested by its priority is not used.
MPIRUN = """for last; do :; done
seconds=0.004; [[ $* != *allreduce_algorithm\\ 4* ]] || seconds=0.002
[[ $* != *allreduce_algorithm\\ 3* ]] || { echo broken >&2; exit 3; }
point() { echo "{\\"algorithm\\": \\"$1\\", \\"bytes\\": 44695552, \\"seconds_median\\": $2, \\"wrong\\": 0}"; }
echo "{\\"results\\": [$(point window 0.001), $(point auto 0.001), $(point blocking $seconds)]}" >$last
[[ $* != *coll_sm_priority* ]] || echo 'comm_select: selecting          sm, priority 100, Enabled' >&2"""


class CompareSums(Tools):
    def test_prints_the_fastest_and_the_skipped_settings(self):
        self.program("mpirun.openmpi", MPIRUN)
        result = self.run_tool("compare_sums", "--rounds", "2", "--ranks", "2", "--openmpi",
                               self.program("trainer", "exit 1"), "--mpich", str(self.root / "missing"), "--json",
                               str(self.root / "all.json"))
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertIn("without MPICH: ", result.stdout)
        self.assertRegex(result.stdout, r"auto, ours over Open MPI +1\.000\* +44\.70 +-\n")
        self.assertRegex(result.stdout, r"MPI_Allreduce, Open MPI, ring +2\.000  +22\.35 +2\.00 \(2\.00-2\.00\)\n")
        self.assertRegex(result.stdout, r"\n.*shared memory \(sm\) +4\.000 ")
        self.assertIn("recursive doubling: ended with 3: broken", result.stdout)
        self.assertIn("hierarchical (han): not used by the library", result.stdout)
        one, = json.loads((self.root / "all.json").read_text(encoding="utf-8"))["results"]
        self.assertEqual([4.0, 4.0], one["ratios"]["MPI_Allreduce, Open MPI, default"])
        self.assertEqual(2, len(one["rounds"]))

    def test_has_nothing_to_compare_where_nothing_is_built(self):
        result = self.run_tool("compare_sums", "--openmpi", "/missing", "--mpich", "/missing")
        self.assertEqual(1, result.returncode)
        self.assertIn("cmake --preset release", result.stderr)


if __name__ == "__main__":
    unittest.main()
