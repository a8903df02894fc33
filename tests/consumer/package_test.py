"""Makes the Debian packages of a build, unpacks them into an empty folder and trains from there."""

import argparse
import gzip
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ASKED = argparse.Namespace()


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.made = run(ASKED.cpack, "-G", "DEB", "--config", ASKED.build / "CPackConfig.cmake", "-B", cls.folder)
        cls.files = {path.name.split("_")[0]: path for path in cls.folder.glob("*.deb")}
        cls.root = cls.folder / "root"
        for path in cls.files.values():
            run("dpkg-deb", "--extract", path, cls.root)

    def setUp(self):
        self.assertEqual(0, self.made.returncode, self.made.stdout + self.made.stderr)

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.files[package], name).stdout.strip()

    def contents(self, package):
        listed = run("dpkg-deb", "--contents", self.files[package]).stdout
        return {line.split()[5] for line in listed.splitlines()}

    def test_are_two_of_this_version(self):
        self.assertEqual({"tutti", "libtutti-dev"}, set(self.files))
        for package, path in self.files.items():
            self.assertEqual(ASKED.version, self.field(package, "Version"))
            self.assertEqual(f"{package}_{ASKED.version}_{self.field(package, 'Architecture')}.deb", path.name)
            self.assertRegex(self.field(package, "Maintainer"), r"^[^<>]+ <[^<>]+@[^<>]+>$")

    def test_name_the_packages_of_the_libraries_that_the_files_need(self):
        depends = self.field("tutti", "Depends")
        for library in ("libc6 (", "libstdc++6 (", "libhdf5", "libpng16", "libfmt", "libgomp1"):
            self.assertIn(library, depends)
        self.assertRegex(depends, r"libopenmpi\d|libmpich\d")
        self.assertRegex(self.field("tutti", "Recommends"), r"^(openmpi-bin|mpich), python3$")
        self.assertEqual(f"tutti (= {ASKED.version})", self.field("libtutti-dev", "Depends"))

    def test_each_say_what_they_are_for(self):
        descriptions = {package: self.field(package, "Description").splitlines() for package in self.files}
        self.assertEqual("deep-learning training that behaves like an HPC code", descriptions["tutti"][0])
        self.assertEqual("training with a custom network and data set", descriptions["libtutti-dev"][0])
        for lines in descriptions.values():
            self.assertEqual([], [line for line in lines[1:] if line.strip() == lines[0]])

    def test_tell_in_which_package_the_library_is(self):
        run("dpkg-deb", "--control", self.files["tutti"], self.folder / "control")
        self.assertRegex((self.folder / "control/shlibs").read_text(encoding="utf-8"), r"libtutti \d+ tutti ")

    def test_hold_no_symbols_that_only_debuggers_read(self):
        for path in ("usr/bin/tutti", next(iter(self.root.glob("usr/lib/**/libtutti.so.*.*")))):
            self.assertNotIn(".symtab", run("readelf", "--sections", "--wide", self.root / path).stdout)

    def test_part_what_runs_from_what_is_built_with(self):
        program, development = self.contents("tutti"), self.contents("libtutti-dev")
        for path in ("./usr/bin/tutti", "./usr/bin/tutti-run", "./usr/libexec/tutti/trainer",
                     "./usr/share/man/man1/tutti.1.gz",
                     "./usr/share/bash-completion/completions/tutti", "./usr/share/doc/tutti/changelog.gz",
                     "./usr/share/doc/tutti/examples/jobs/train.sbatch", "./usr/share/doc/tutti/README.md",
                     "./usr/share/doc/tutti/docs/README.md",
                     "./usr/bin/tutti-export", "./usr/bin/tutti-plot"):
            self.assertIn(path, program)
        self.assertIn("./usr/include/tutti/app/program.hpp", development)
        self.assertTrue(any(path.endswith("cmake/tutti/tuttiConfig.cmake") for path in development), development)
        files = {path for path in program & development if not path.endswith("/")}
        self.assertEqual(set(), files)

    def test_hold_a_manual_page_without_a_time(self):
        packed = (self.root / "usr/share/man/man1/tutti.1.gz").read_bytes()
        self.assertEqual(bytes(4), packed[4:8], "the archive's time")
        self.assertIn(f'"Tutti {ASKED.version}"'.encode(), gzip.decompress(packed))

    def test_hold_a_program_that_trains_where_it_was_unpacked(self):
        program = self.root / "usr/bin/tutti"
        shown = run(program, "--version")
        self.assertEqual(f"tutti {ASKED.version}", shown.stdout.splitlines()[0], shown.stderr)
        companion = run(program, "data", "fetch", "--help")
        self.assertIn("usage: tutti data fetch", companion.stdout, companion.stderr)
        trained = run(ASKED.mpiexec, ASKED.numproc, "2", program, "--data", "synthetic:256x1x12x12:4", "--model", "mlp",
                      "--epochs", "2", "--threads", "1")
        self.assertEqual(0, trained.returncode, trained.stderr)
        self.assertEqual(2, len(re.findall("^epoch ", trained.stdout, re.MULTILINE)), trained.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    for name in ("version", "cpack", "mpiexec", "numproc"):
        parser.add_argument(f"--{name}", required=True)
    parser.parse_args(namespace=ASKED)
    unittest.main(argv=sys.argv[:1])
