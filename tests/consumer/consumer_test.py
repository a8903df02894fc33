"""Builds tests/consumer/project against an installed Tutti that has been moved, and trains with its programs."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parent / "project"
ASKED = argparse.Namespace()
RANKS = (1, 2, 4)


def run(*words, cwd=None):
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=240)


class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "somewhere else"
        shutil.copytree(ASKED.prefix, cls.prefix, symlinks=True)
        cls.source = cls.folder / "source"
        shutil.copytree(PROJECT, cls.source)
        cls.build = cls.folder / "build"
        cls.configured = cls.configure(cls.source, cls.build)
        cls.built = run(ASKED.cmake, "--build", cls.build)

    @classmethod
    def configure(cls, source, build):
        return run(ASKED.cmake, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={ASKED.compiler}",
                   f"-DCMAKE_PREFIX_PATH={cls.prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")

    def setUp(self):
        for step in (self.configured, self.built):
            self.assertEqual(0, step.returncode, step.stdout + step.stderr)

    def train(self, ranks, program, *options):
        result = run(ASKED.mpiexec, ASKED.numproc, str(ranks), self.build / program, *options, cwd=self.folder)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        return result.stdout, result.stderr

    def test_trains_its_own_network_and_data_to_the_same_bits_on_any_ranks(self):
        curves, digests = set(), set()
        for ranks in RANKS:
            out, err = self.train(ranks, "stripes", "--parts", "4", "--epochs", "3", "--threads", "1")
            curves.add(tuple(re.findall(r"^(epoch .*), time", out, re.MULTILINE)))
            digests.add(re.search(r"weights (\w{16})$", err, re.MULTILINE)[1])
            self.assertIn("stripes: 4096 training and 1024 test images of 1x12x12, 2 classes", err)
            self.assertIn("stripes-net: ", err)
        self.assertEqual((1, 1), (len(curves), len(digests)), f"{curves} {digests}")
        self.assertEqual(3, len(curves.pop()))

    def test_learns_keeps_and_goes_on_as_the_program_does(self):
        out = self.folder / "run"
        self.train(2, "stripes", "--parts", "4", "--steps", "50", "--out", out)
        text, output = self.train(3, "stripes", "--resume", "--out", out, "--steps", "0", "--epochs", "3")
        self.assertIn("(step 50 of 96)", output)
        accuracy = float(re.findall(r"test acc ([\d.]+)", text)[-1])
        self.assertGreater(accuracy, 0.9, text)
        evaluated, _ = self.train(1, "stripes", "eval", "--checkpoint", out)
        self.assertIn(f"test acc {accuracy:.4f}, 1024 images", evaluated)
        described, _ = self.train(1, "stripes", "data", "info", "stripes")
        self.assertIn("training   4096 images of 1x12x12", described)
        predicted, _ = self.train(2, "stripes", "predict", "--checkpoint", out)
        self.assertIn(f"test acc {accuracy:.4f}, 1024 images", predicted)
        _, output = self.train(1, "stripes", "report", out)
        self.assertNotIn("without classes", output)
        self.assertTrue((out / "report.html").is_file())

    def test_has_the_tools_and_all_that_the_documents_link_to(self):
        shown = run(sys.executable, self.prefix / "bin/tutti-export", "--help")
        self.assertEqual(0, shown.returncode, shown.stderr)
        self.assertIn("usage: tutti-export ", shown.stdout)
        trainer = str((self.prefix / "libexec/tutti/trainer").parent.resolve() / "trainer")
        self.assertIn("".join(trainer.split()), "".join(shown.stdout.split()))  # which breaks lines within a path
        self.assertTrue((self.prefix / "libexec/tutti/plotting/command_line.py").resolve().is_file())
        self.assertTrue((self.prefix / "bin/tutti-plot").resolve().is_file())
        documents = self.prefix / "share/doc/tutti"
        pages = [documents / "README.md", *(documents / "docs").glob("*.md")]
        links = [page.parent / link for page in pages
                 for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8"))]
        self.assertIn(documents / "docs/getting-started.md", links)
        self.assertEqual([], [link for link in links if not link.is_file()])

    def test_is_shown_and_tried_out_as_what_is_built_in(self):
        self.train(1, "stripes", "data", "show", "stripes", self.folder / "stripes.png")
        self.assertTrue((self.folder / "stripes.png").is_file())
        toured, _ = self.train(2, "stripes", "tour", "--to", "2")
        self.assertIn("Station 2 of ", toured)
        swept, _ = self.train(2, "stripes", "sweep", "--lr", "0.05,0.1", "--steps", "5", "--parts", "2")
        self.assertIn("data stripes", swept)
        self.assertIn("model stripes-net", swept)

    def test_trains_by_the_classes_alone_to_the_same_bits_on_any_ranks(self):
        printed = {self.train(ranks, "by_hand")[0] for ranks in RANKS}
        self.assertEqual(1, len(printed), printed)
        epochs = printed.pop().splitlines()
        self.assertEqual(5, len(epochs))
        self.assertRegex(epochs[-1], r"^(1\.0000|0\.9\d+) [0-9a-f]{16}$")

    def test_finds_no_version_that_may_be_another(self):
        for version, fits in (("0.1", True), (ASKED.version, True), ("0.2", False), ("0.0.9", False), ("1.0", False)):
            other = self.folder / f"wants-{version}"
            other.mkdir()
            (other / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.23)\nproject(other LANGUAGES CXX)\n"
                f"find_package(tutti {version} REQUIRED)\n", encoding="utf-8")
            self.assertEqual(fits, self.configure(other, other / "build").returncode == 0, version)

    def test_is_installed_with_the_program_under_both_names(self):
        for name in ("bin/tutti", "libexec/tutti/trainer"):
            shown = run(self.prefix / name, "--version")
            self.assertEqual(f"tutti {ASKED.version}", shown.stdout.splitlines()[0], shown.stderr)

    def test_names_no_folder_of_the_build(self):
        for file in self.prefix.rglob("cmake/tutti/*"):
            self.assertNotIn(str(ASKED.prefix.parent), file.read_text(encoding="utf-8"), file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="where it is installed")
    for name in ("cmake", "compiler", "mpiexec", "numproc", "version"):
        parser.add_argument(f"--{name}", required=True)
    parser.parse_args(namespace=ASKED)
    unittest.main(argv=sys.argv[:1])
