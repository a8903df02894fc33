"""The trainer and its companions: a copy of the program with companions of this test."""

import ast
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TRAINER = pathlib.Path(os.environ["TUTTI_TRAINER"])
COMPANIONS = pathlib.Path(__file__).resolve().parents[2] / "tools/companions"

GREET = '''#!/usr/bin/env python3
"""greet: writes a greeting."""
import os, sys
blocked = [line.split()[1] for line in open("/proc/self/status") if line.startswith("SigBlk")]
print(sys.argv[1:], os.environ["TUTTI_TRAINER"], os.environ["TUTTI_CALL"], int(blocked[0], 16))
sys.exit(7)
'''


class Companions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.trainer = self.root / "trainer"
        shutil.copy(TRAINER, self.trainer)
        (self.root / "libexec/tutti").mkdir(parents=True)
        for name in ("trainer-greet", "trainer-data-greet"):
            path = self.root / "libexec/tutti" / name
            path.write_text(GREET, encoding="utf-8")
            path.chmod(0o755)

    def run_trainer(self, *words, **environment):
        libraries = f"{TRAINER.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        return subprocess.run([self.trainer, *words], env=os.environ | {"LD_LIBRARY_PATH": libraries} | environment,
                              capture_output=True, text=True, check=False, timeout=60)

    def test_get_their_words_and_the_path_of_the_trainer_and_give_its_status(self):
        for command in (["greet"], ["data", "greet"]):
            greeted = self.run_trainer(*command, "--to", "you", "--help")
            self.assertEqual(f"['--to', 'you', '--help'] {self.trainer} {self.trainer} 0\n", greeted.stdout)
            self.assertEqual((7, ""), (greeted.returncode, greeted.stderr))

    def test_work_on_rank_0_alone(self):
        greeted = self.run_trainer("greet", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1")
        self.assertEqual((0, "", ""), (greeted.returncode, greeted.stdout, greeted.stderr))
        self.assertEqual(7, self.run_trainer("greet", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0").returncode)

    def test_are_listed_with_the_built_in_commands(self):
        lines = self.run_trainer("--help").stdout.splitlines()
        self.assertIn("  greet             writes a greeting", lines)
        last = max(number for number, line in enumerate(lines) if line.startswith("  data "))
        self.assertEqual("  data greet        writes a greeting", lines[last])
        self.assertIn("  greet             writes a greeting", self.run_trainer("help").stdout.splitlines())

    def test_are_known_to_mistyped_words(self):
        for written, meant in ((["gret"], "greet"), (["data", "great"], "data greet")):
            mistaken = self.run_trainer(*written)
            self.assertIn(f"did you mean '{meant}'?", mistaken.stderr)
            self.assertEqual(64, mistaken.returncode)
        self.assertIn("data greet", self.run_trainer("data").stderr)

    def test_are_read_by_old_versions_of_python_which_they_refuse(self):
        for name in COMPANIONS.glob("trainer-*"):
            text = name.read_text(encoding="utf-8")
            ast.parse(text, str(name), feature_version=(3, 6))
            self.assertNotIn("from __future__", text, "3.6 does not know annotations")

    def test_report_what_to_install_where_there_is_no_python(self):
        missing = self.run_trainer("greet", PATH=str(self.root))
        self.assertEqual(64, missing.returncode)
        self.assertIn("install Python 3.9 or newer", missing.stderr)
        self.assertEqual("", missing.stdout)

    def test_leave_built_in_commands_alone(self):
        shutil.copy(self.root / "libexec/tutti/trainer-greet", self.root / "libexec/tutti/trainer-data-info")
        self.assertIn("glyphs", self.run_trainer("data", "info", "glyphs").stdout)


if __name__ == "__main__":
    unittest.main()
