"""Puts every kind of violation into a small tree and checks that the layer check reports it, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "check_layers.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))

import check_layers  # noqa: E402

SOUND = {
    "include/tutti/CMakeLists.txt": "base/shape.hpp\ncomm/world.hpp\n",
    "include/tutti/base/shape.hpp": "#pragma once\n#include <cstdint>\n",
    "include/tutti/comm/world.hpp": '#pragma once\n#include "tutti/base/shape.hpp"\n',
    "src/base/shape.cpp": '#include "tutti/base/shape.hpp"\n#include <fmt/format.h>\n#include <sys/stat.h>\n',
    "src/comm/ranks.hpp": "#pragma once\n",
    "src/comm/mpi/mpi_world.cpp": '#include "tutti/comm/world.hpp"\n#include "comm_error.hpp"\n'
                                  '#include "ranks.hpp"\n#include "../ranks.hpp"\n#include "comm/ranks.hpp"\n'
                                  '#include <mpi.h>\n',
    "src/comm/mpi/comm_error.hpp": "#pragma once\n#include <mpi.h>\n",
    "src/data/gz_reader.cpp": "#include <zlib.h>\n",
    "src/app/main.cpp": '#include "tutti/comm/world.hpp"\n#include <toml.hpp>\n#include <nlohmann/json.hpp>\n',
}


class LayerCheck(unittest.TestCase):
    def findings(self, changes):
        """The findings of the valid tree with these files, or with these texts appended to existing files."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in SOUND.items():
                self.write(folder, path, text + changes.get(path, ""))
            for path in changes.keys() - SOUND.keys():
                self.write(folder, path, changes[path])
            return check_layers.check(pathlib.Path(folder).resolve())[0]

    @staticmethod
    def write(folder, path, text):
        target = pathlib.Path(folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def expect(self, changes, path, line, words):
        findings = self.findings(changes)
        self.assertEqual([(path, line)], [finding[:2] for finding in findings], findings)
        self.assertIn(words, findings[0][2])

    def expect_nothing(self, changes):
        self.assertEqual([], self.findings(changes))

    def test_a_valid_tree_has_no_findings(self):
        self.expect_nothing({})

    def test_a_module_may_not_include_a_higher_one(self):
        self.expect({"src/base/log.cpp": '#include "tutti/comm/world.hpp"\n'}, "src/base/log.cpp", 1,
                    "base must not include tutti/comm/world.hpp")

    def test_modules_of_one_level_may_not_include_each_other(self):
        self.expect({"src/comm/a.cpp": '\n#include "tutti/storage/atomic_file.hpp"\n'}, "src/comm/a.cpp", 2,
                    "it may include backend, base")

    def test_a_private_header_of_another_module_is_refused_by_name(self):
        self.expect({"src/app/a.cpp": '#include "ranks.hpp"\n'}, "src/app/a.cpp", 1, "private to comm")

    def test_a_private_header_of_another_module_is_refused_by_path(self):
        for path in ("../comm/ranks.hpp", "comm/ranks.hpp"):
            with self.subTest(path):
                self.expect({"src/app/a.cpp": f'#include "{path}"\n'}, "src/app/a.cpp", 1, "private to another")

    def test_a_private_header_must_exist(self):
        self.expect({"src/app/a.cpp": '#include "b.hpp"\n'}, "src/app/a.cpp", 1, "is not in src/app")

    def test_a_public_header_includes_no_private_one(self):
        self.expect({"include/tutti/comm/world.hpp": '#include "ranks.hpp"\n'}, "include/tutti/comm/world.hpp", 3,
                    "a public header includes")

    def test_every_library_stays_in_its_folders(self):
        strays = {"mpi.h": "src/app/a.cpp", "nccl.h": "src/comm/mpi/a.cpp", "cuda_runtime.h": "src/comm/mpi/a.cpp",
                  "cudnn.h": "src/nn/a.cpp", "cublas_v2.h": "src/train/a.cpp",
                  "omp.h": "src/train/a.cpp",
                  "hdf5.h": "src/data/a.cpp", "H5public.h": "src/storage/a.cpp", "zlib.h": "src/storage/a.cpp",
                  "jpeglib.h": "src/app/a.cpp", "png.h": "src/storage/a.cpp",
                  "toml.hpp": "src/storage/a.cpp", "nlohmann/json.hpp": "src/nn/a.cpp"}
        for header, path in strays.items():
            with self.subTest(header):
                self.expect({path: f"#include <{header}>\n"}, path, 1, f"<{header}> stays in")

    def test_no_library_appears_in_a_public_header(self):
        for header in ("mpi.h", "fmt/format.h", "omp.h"):
            with self.subTest(header):
                self.expect({"include/tutti/comm/world.hpp": f"#include <{header}>\n"},
                            "include/tutti/comm/world.hpp", 3, "a public header includes")

    def test_an_unknown_library_is_refused(self):
        self.expect({"src/app/a.cpp": "#include <boost/array.hpp>\n"}, "src/app/a.cpp", 1, "no library in the table")

    def test_zlib_is_used_by_one_file(self):
        self.expect({"src/data/other.cpp": "#include <zlib.h>\n"}, "src/data/other.cpp", 1, "src/data/gz_reader.cpp")

    def test_image_libraries_are_used_by_one_file(self):
        for header in ("jpeglib.h", "png.h"):
            with self.subTest(header):
                text = f"#include <{header}>\n"
                self.expect({"src/data/codec.cpp": text, "src/data/other.cpp": text},
                            "src/data/other.cpp", 1, "src/data/codec.cpp")

    def test_an_include_in_a_comment_counts_for_nothing(self):
        self.expect_nothing({"src/app/a.cpp": '// #include <mpi.h>\n/*\n#include "tutti/app/x.hpp"\n*/\n'})

    def test_a_file_outside_the_modules_is_refused(self):
        self.expect({"src/extra/a.cpp": "int x;\n"}, "src/extra/a.cpp", 1, "is in no module")

    def test_a_public_header_that_only_its_module_includes_is_refused(self):
        self.expect({"include/tutti/nn/network.hpp": "#pragma once\n",
                     "include/tutti/CMakeLists.txt": "nn/network.hpp\n",
                     "src/nn/network.cpp": '#include "tutti/nn/network.hpp"\n'},
                    "include/tutti/nn/network.hpp", 1, "move it to src/nn")

    def test_a_header_of_the_topmost_module_may_be_public_for_other_programs(self):
        self.expect_nothing({"include/tutti/app/program.hpp": "#pragma once\n",
                             "include/tutti/CMakeLists.txt": "app/program.hpp\n"})

    def test_a_header_that_a_public_one_needs_may_be_public(self):
        self.expect_nothing({"include/tutti/comm/group.hpp": "#pragma once\n",
                             "include/tutti/CMakeLists.txt": "comm/group.hpp\n",
                             "include/tutti/comm/world.hpp": '#include "tutti/comm/group.hpp"\n'})

    def test_a_public_header_missing_in_the_list_is_reported(self):
        self.expect({"include/tutti/base/log.hpp": "#pragma once\n"}, "include/tutti/base/log.hpp", 1,
                    "include/tutti/CMakeLists.txt")

    def test_conditional_compilation_is_refused(self):
        for line in ("#ifdef TUTTI_CUDA", "#if defined(X)", "  # ifndef X"):
            with self.subTest(line):
                self.expect({"src/app/a.cpp": f"\n{line}\n"}, "src/app/a.cpp", 2, "choose between source files")

    def test_openmp_pragmas_are_refused(self):
        self.expect({"src/app/a.cpp": "#pragma omp parallel for\n"}, "src/app/a.cpp", 1, "std::thread")

    def test_a_header_without_pragma_once_is_refused(self):
        self.expect({"src/app/a.hpp": "int x;\n"}, "src/app/a.hpp", 1, "#pragma once")

    def test_names_that_are_too_general_are_refused(self):
        self.expect({"src/app/string_util.cpp": "int x;\n"}, "src/app/string_util.cpp", 1, "'util' is too general")

    def test_no_line_is_longer_than_120_columns(self):
        for path in ("src/app/a.cpp", "src/app/a.inc", "tests/app/a_test.cpp", "src/app/CMakeLists.txt",
                     "tools/cmake/Tests.cmake", "tools/plot.py", "jobs/slurm.bash"):
            with self.subTest(path):
                comment = "//" if path.endswith((".cpp", ".inc")) else "#"
                self.expect_nothing({path: comment.ljust(120, "x") + "\n"})
                self.expect({path: "\n" + comment.ljust(121, "x") + "\n"}, path, 2, "121 columns")

    def test_reports_two_types_of_one_name(self):
        text = "#pragma once\nnamespace tutti {\nstruct Finding {\n};\n}\n"
        self.expect({"src/app/a.hpp": text, "src/comm/b.hpp": text}, "src/comm/b.hpp", 3, "src/app/a.hpp has another")
        self.expect_nothing({"src/app/a.hpp": text, "src/comm/b.hpp": text.replace("tutti", "tutti::mpi")})


class Program(unittest.TestCase):
    def test_refuses_a_folder_without_code(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
            self.assertEqual(1, result.returncode)
            self.assertIn("give the root of a checkout", result.stderr)

    def test_prints_place_and_remedy_and_ends_with_one(self):
        with tempfile.TemporaryDirectory() as folder:
            LayerCheck.write(folder, "src/app/a.cpp", "#include <mpi.h>\n")
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
            self.assertEqual(1, result.returncode)
            self.assertTrue(result.stdout.startswith("src/app/a.cpp:1: MPI's <mpi.h> stays in src/comm/mpi/: "),
                            result.stdout)


if __name__ == "__main__":
    unittest.main()
