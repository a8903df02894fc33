"""Checks tools/packaging against the libraries that tools/setup lists, and the syntax of each kind of file."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools/packaging"

# The name of each Debian package in Spack and on conda-forge; None: the site's compiler.
NAMES = {
    "build-essential": (None, "cxx-compiler"), "cmake": ("cmake", "cmake"), "ninja-build": ("ninja", "ninja"),
    "pkg-config": ("pkgconf", "pkg-config"), "python3": ("python", "python"), "libopenmpi-dev": ("openmpi", "openmpi"),
    "openmpi-bin": ("openmpi", "openmpi"), "libhdf5-dev": ("hdf5", "hdf5"),
    "libgtest-dev": ("googletest", "gtest"), "libgmock-dev": ("googletest", "gmock"),
    "libfmt-dev": ("fmt", "fmt"),
    "nlohmann-json3-dev": ("nlohmann-json", "nlohmann_json"),
    "libtoml11-dev": ("toml11", "toml11"), "zlib1g-dev": ("zlib", "zlib"),
    "libjpeg-dev": ("libjpeg-turbo", "libjpeg-turbo"), "libpng-dev": ("libpng", "libpng"),
    "libtiff-dev": ("libtiff", "libtiff")}

# The subset of YAML that the recipes use: comments, keys, plain values and items. A plain value with a colon at its end
# or before a space would be a mapping.
PLAIN = r"""[\w.-](?:[^\s:#'"]|:(?=\S)| (?!#))*"""
YAML_LINE = re.compile(rf'(?:  )*(?:#.*|[\w-]+:(?: {PLAIN})?|- (?P<item>{PLAIN}|"[^"\\]+"))')

# Those of Spack 1.0 for the body of a package's class.
SPACK_DIRECTIVES = {"build_system", "can_splice", "conflicts", "default_args", "depends_on", "extends", "license",
                    "maintainers", "patch", "provides", "redistribute", "requires", "resource", "variant", "version",
                    "when", "generator"}


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def version_of_cmake():
    return re.search(r"VERSION ([\d.]+) ", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def directives(body):
    """The names of the functions that statements of a class call."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield statement.items[0].context_expr.func.id
            yield from directives(statement.body)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield statement.value.func.id


def easyconfigs():
    """The parameters of each, by its file's name."""
    configs = {}
    for path in (FOLDER / "easybuild").glob("*.eb"):
        configs[path.name] = {"SHLIB_EXT": "so"}
        exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), configs[path.name])
    return configs


def yaml_items(test, text):
    """The names of packages among the items, without their versions."""
    matches = [YAML_LINE.fullmatch(line) for line in text.splitlines()]
    test.assertNotIn(None, matches, text.splitlines()[matches.index(None)] if None in matches else "")
    return {re.match(r"[\w.-]+", match["item"].strip('"'))[0] for match in matches if match["item"]}


class Packaging(unittest.TestCase):
    def test_names_every_library_that_setup_installs(self):
        listed = subprocess.run([ROOT / "tools/setup", "--list"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(sorted(NAMES), sorted(listed.split()))
        spack, conda = zip(*NAMES.values())
        self.assertEqual(set(), {name for name in spack if name} - yaml_items(self, read("spack.yaml")))
        self.assertEqual(set(), set(conda) - yaml_items(self, read("environment.yml")))

    def test_takes_no_item_for_text_that_yaml_reads_as_a_mapping(self):
        for line in ("- cmake@3.23:", "- hdf5@1.10.7: ~mpi", "\tname: tutti", "   - three", "- 'one", "name:tutti"):
            self.assertIsNone(YAML_LINE.fullmatch(line), line)

    def test_builds_an_image_in_two_stages_from_files_that_are_there(self):
        sections = {}
        for line in read("tutti.def").splitlines():
            if line.startswith(("%", "Bootstrap:")):
                sections.setdefault(line, []).append(text := [])
            elif line.strip() and not line.startswith("#"):
                text.append(line.strip())
        self.assertEqual({"Bootstrap: docker", "%files", "%files from build", "%post", "%environment", "%runscript",
                          "%test", "%help"}, set(sections))
        self.assertEqual([["From: debian:12", "Stage: build"], ["From: debian:12", "Stage: run"]],
                         sections["Bootstrap: docker"])
        self.configure_image([line.split() for line in sections["%files"][0]])
        build, _ = sections["%post"]
        self.assertIn("tools/setup", build)
        self.assertIn("cmake --install build/release --prefix /opt/tutti", build)
        self.assertIn("/opt/tutti/bin", " ".join(sections["%environment"][0]))

    def configure_image(self, files):
        """What the recipe copies suffices to configure, and has all that is installed."""
        with tempfile.TemporaryDirectory() as scratch:
            source, build = pathlib.Path(scratch, "src"), pathlib.Path(scratch, "build")
            for here, there in files:
                self.assertTrue(there.startswith("/src/"), there)
                target = pathlib.Path(scratch, there.lstrip("/"))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(ROOT / here)
            done = subprocess.run(["cmake", "-S", source, "-B", build, "-DTUTTI_TESTS=OFF", "-DTUTTI_CUDA=OFF"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(0, done.returncode, done.stderr)
            scripts = [path.read_text(encoding="utf-8") for path in build.rglob("cmake_install.cmake")]
            installed = {path for text in scripts for path in re.findall(rf'"({re.escape(str(source))}/[^"]+)"', text)}
            self.assertIn(f"{source}/README.md", installed)
            self.assertEqual([], [path for path in sorted(installed) if not pathlib.Path(path).exists()])

    def test_has_a_modulefile_of_what_is_installed(self):
        text = read("modulefile")
        self.assertTrue(text.startswith("#%Module1.0\n"), text)
        self.assertEqual(text.count("{"), text.count("}"))
        self.assertIn("prepend-path PATH $prefix/bin", text)
        self.assertIn("prepend-path MANPATH $prefix/share/man\nappend-path MANPATH {}", text)
        self.assertRegex(text, r"foreach folder \{lib lib64\}")

    def test_has_a_spack_recipe_of_the_libraries_of_its_environment(self):
        recipe = (FOLDER / "spack_repo/tutti/packages/tutti/package.py").read_text(encoding="utf-8")
        compile(recipe, "package.py", "exec")
        depends = {re.match(r"[\w-]+", spec)[0] for spec in re.findall(r'depends_on\("([^"]+)"', recipe)}
        stands_for = {"openmpi": "mpi", "zlib": "zlib-api", "libjpeg-turbo": "jpeg"}
        for_tests_and_scripts = {"googletest", "python", "pkgconf"}
        wanted = {stands_for.get(name, name) for name, _ in NAMES.values() if name} - for_tests_and_scripts
        self.assertEqual(set(), wanted - depends)
        self.assertIn('depends_on("python@3.9:", type=("build", "run"))', recipe)  # for manual page and completion
        self.assertRegex(recipe, r"parents\[6\]\.as_uri\(\)\n    homepage = ")
        self.assertEqual(ROOT, (FOLDER / "spack_repo/tutti/packages/tutti/package.py").parents[6])
        package = ast.parse(recipe).body[-1]
        self.assertLessEqual(set(directives(package.body)), SPACK_DIRECTIVES)
        self.assertIn('requires("target=x86_64:", "target=aarch64:", policy="one_of"', recipe)
        for requirement in ("cmake@3.23:", "hdf5@1.10.7: ~mpi", "toml11@3.7:"):
            self.assertIn(f'"{requirement}"', recipe)
            self.assertIn(f'"{requirement}"', read("spack.yaml"))

    def test_has_an_easyconfig_of_the_same_libraries(self):
        configs = easyconfigs()
        for file, config in configs.items():
            self.assertEqual("{name}-{version}-{toolchain[name]}-{toolchain[version]}.eb".format(**config), file)
        tutti, = (config for config in configs.values() if config["name"] == "Tutti")
        versions = {name.lower(): version for name, version, *_ in tutti["builddependencies"] + tutti["dependencies"]}
        of_toolchain_or_tests = {"cxx-compiler", "openmpi", "pkg-config", "gtest", "gmock"}
        self.assertEqual({name for _, name in NAMES.values()} - of_toolchain_or_tests, set(versions))
        self.assertIn(f"toml11-{versions['toml11']}-GCCcore-14.3.0.eb", configs)
        self.assertEqual(version_of_cmake(), tutti["version"])
        self.assertFalse(tutti["toolchainopts"]["optarch"], "a global -march")

    @unittest.skipUnless(shutil.which("eb"), "no EasyBuild")
    def test_has_easyconfigs_that_easybuild_reads(self):
        files = [FOLDER / "easybuild" / name for name in easyconfigs()]
        with tempfile.TemporaryDirectory() as scratch:
            for action in ("--dry-run", "--check-style"):
                self.run_tool(["eb", action, f"--robot={FOLDER / 'easybuild'}", *files], scratch,
                              EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES="1", EASYBUILD_PREFIX=scratch)

    def test_has_a_reframe_test_of_the_weights_in_the_readme(self):
        compile(read("reframe/tutti.py"), "tutti.py", "exec")
        self.assertIn('parents[3] / "README.md"', read("reframe/tutti.py"))
        pattern = re.search(r're\.search\(r"([^"]+)"', read("reframe/tutti.py"))[1]
        self.assertEqual(1, len(re.findall(pattern, (ROOT / "README.md").read_text(encoding="utf-8"))))

    @unittest.skipUnless(shutil.which("reframe"), "no ReFrame")
    def test_has_a_test_that_reframe_reads(self):
        with tempfile.TemporaryDirectory() as scratch:
            output = self.run_tool(["reframe", "--prefix", scratch, "-c", FOLDER / "reframe/tutti.py", "--dry-run"],
                                   scratch)
            self.assertIn("Ran 3/3 test case(s)", output)

    def run_tool(self, command, folder, **settings):
        done = subprocess.run(command, cwd=folder, env=os.environ | settings, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_have_no_name_or_path_of_one_kind_of_processor(self):
        for name in ("tutti.def", "modulefile", "environment.yml", "spack.yaml"):
            self.assertNotRegex(read(name), "x86|amd64|aarch64|arm64")

    def test_have_the_version_from_one_place(self):
        version = version_of_cmake()
        # Those of EasyBuild have it in their names, and are compared above; the archive that they build may be there.
        others = [path for path in FOLDER.rglob("*") if path.is_file() and path.parent.name != "easybuild"]
        others += [path for path in (ROOT / "tools/cmake").iterdir()] + [ROOT / "tools/docs/doxygen.conf"]
        for path in others:
            self.assertNotIn(version, path.read_text(encoding="utf-8"), f"{path}: take it from CMakeLists.txt")
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        newest = re.search(r"^## \[(?P<name>[^]]+)\](?: - \d{4}-\d\d-\d\d)?\n(?P<text>.*?)(?=^## |\Z)", changelog,
                           re.MULTILINE | re.DOTALL)
        self.assertIn(newest["name"], {"Unreleased", version})
        if newest["name"] == "Unreleased":
            self.assertIn(f"version {version} ", newest["text"], "list the changes of the next version, or release it")
        self.assertLessEqual(set(re.findall(r"^### (\w+)", changelog, re.MULTILINE)),
                             {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"})


if __name__ == "__main__":
    unittest.main()
