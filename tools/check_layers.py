#!/usr/bin/env python3
"""Checks the files of Tutti against its module table, and reports every file that violates it.

Reads the text of src, include and tests only; compiles nothing. Prints `path:line: what, and what to do` for each
finding and ends with 1 when there is any.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

# Which modules each module may include, besides itself. Lower ones first.
MODULES = {
    "base": set(),
    "backend": {"base"},
    "comm": {"backend", "base"},
    "storage": {"comm", "backend", "base"},
    "nn": {"backend", "base"},
    "data": {"storage", "backend", "base"},
    "watch": {"comm", "backend", "base"},
    "train": {"watch", "data", "nn", "storage", "comm", "backend", "base"},
    "app": {"train", "watch", "data", "nn", "storage", "comm", "backend", "base"},
}


@dataclasses.dataclass(frozen=True)
class Library:
    """A library's headers, as a pattern of the name between the brackets, and the folders that may include them."""

    name: str
    headers: str
    folders: tuple
    one_file: bool = False


LIBRARIES = [
    Library("MPI", r"mpi(-ext)?\.h", ("src/comm/mpi/",)),
    Library("NCCL", r"nccl\w*\.h", ("src/comm/nccl/",)),
    Library("CUDA", r"(cuda|cudnn|cublas|driver_types|cooperative_groups|nv|cub/|thrust/).*",
            ("src/backend/cuda/", "src/comm/nccl/")),
    Library("OpenMP", r"omp\.h", ("src/backend/cpu/",)),
    Library("HDF5", r"(hdf5\w*|H5\w+)\.h", ("src/storage/hdf5/",)),
    Library("zlib", r"(zlib|zconf)\.h", ("src/data/",), one_file=True),
    Library("libjpeg", r"(jpeglib|jerror|jmorecfg|jconfig|turbojpeg)\.h", ("src/data/",), one_file=True),
    Library("libpng", r"png(conf)?\.h", ("src/data/",), one_file=True),
    Library("libtiff", r"tiff(io|vers)?\.h", ("src/data/",), one_file=True),
    Library("toml11", r"toml(\.hpp|/.*)", ("src/app/", "src/nn/")),
    Library("nlohmann-json", r"nlohmann/.*", ("src/app/", "src/train/", "src/storage/", "src/data/")),
    Library("fmt", r"fmt/.*", ("src/",)),
]

# The C++ library has no dots in its names; the rest is what the operating system and the compiler bring.
SYSTEM_HEADERS = re.compile(
    r"[a-z_0-9]+|(sys|linux|net|netinet|arpa)/\w+\.h|"
    r"(dirent|dlfcn|fcntl|fnmatch|glob|ifaddrs|netdb|poll|pthread|pwd|sched|spawn|syscall|termios|time|unistd|utime)"
    r"\.h|"
    r"(cpuid|arm_neon|\w+intrin)\.h")

SOURCES = {".cpp", ".cu", ".inc"}
HEADERS = {".hpp", ".cuh"}
COLUMNS = 120
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "impl"}
HEADER_LIST = "include/tutti/CMakeLists.txt"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{")
TYPE = re.compile(r"^(?:struct|class|enum(?: class)?) (?:alignas\(.*\) )?(\w+)\b(?!::)[^;]*\{")
PRAGMA_OPENMP = re.compile(r"^\s*#\s*pragma\s+omp\b")
OPENMP_WORKERS = "src/backend/cpu/stream.cpp"  # shares the threads of the library under it
NOT_CODE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)"""
    r"""|R"(?P<mark>[^ ()\\\t\n]*)\(.*?\)(?P=mark)\""""
    r"""|"(?:\\.|[^"\\\n])*\""""
    r"""|(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])+'""", re.DOTALL)


def without_comments(text):
    return NOT_CODE.sub(lambda m: "\n" * m[0].count("\n") + " " if m["comment"] else m[0], text)


class File:
    """One file of the tree: where it is, whose it is, and what it includes."""

    def __init__(self, root, path):
        self.name = path.relative_to(root).as_posix()
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.is_header = path.suffix in HEADERS
        self.is_public = self.name.startswith("include/")
        parts = pathlib.PurePosixPath(self.name).parts
        folder = parts[2:] if self.is_public else parts[1:]
        self.module = folder[0] if len(folder) > 1 else None
        self.code_lines = without_comments(self.text).split("\n")

    def includes(self):
        """Yields (line number, bracket, name)."""
        for number, line in enumerate(self.code_lines, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1], match[2]


def is_script(path):
    return path.is_file() and (path.suffix in (".py", ".bash", ".sbatch", ".pbs")
                               or (not path.suffix and path.read_bytes().startswith(b"#!")))


class Tree:
    def __init__(self, root):
        self.root = root
        self.public = self._files("include")
        self.private = self._files("src")
        self.tests = self._files("tests")
        self.builds = [File(root, path) for folder in ("include", "src", "tests", "tools/cmake")
                       for path in sorted((root / folder).rglob("*"))
                       if path.name == "CMakeLists.txt" or path.suffix == ".cmake"]
        self.scripts = [File(root, path) for folder in ("tools", "tests", "jobs")
                        for path in sorted((root / folder).rglob("*")) if is_script(path)]
        self.ours = self.public + self.private
        self.findings = []

    def _files(self, folder):
        paths = sorted((self.root / folder).rglob("*"))
        return [File(self.root, path) for path in paths if path.suffix in SOURCES | HEADERS]

    def report(self, file, line, what):
        self.findings.append((file.name, line, what))


def check_modules(tree):
    for file in tree.ours:
        if file.module not in MODULES:
            tree.report(file, 1, f"is in no module: move it into one of {', '.join(MODULES)}, or extend the table in "
                                 "tools/check_layers.py")
            continue
        for line, bracket, name in file.includes():
            if name.startswith("tutti/"):
                check_public_include(tree, file, line, name)
            elif bracket == '"':
                check_private_include(tree, file, line, name)
            else:
                check_library_include(tree, file, line, name)


def check_public_include(tree, file, line, name):
    module = name.split("/")[1]
    allowed = MODULES[file.module] | {file.module}
    if module not in allowed:
        tree.report(file, line, f"{file.module} must not include {name}: it may include "
                                f"{', '.join(sorted(allowed - {file.module})) or 'nothing of ours'}; move what is "
                                "needed to a lower module, or this code to a higher one")


def check_private_include(tree, file, line, name):
    if file.is_public:
        tree.report(file, line, f'a public header includes "{name}", which others cannot find: write "tutti/..." or '
                                "move the contents to src")
        return
    module_root = tree.root / "src" / file.module
    # Kernels find their words in a folder for which the tests have another of the same contents.
    for folder in (file.path.parent, file.path.parent / "device", module_root, tree.root / "src"):
        target = (folder / name).resolve()
        if target.is_file():
            if not target.is_relative_to(module_root.resolve()):
                tree.report(file, line, f'"{name}" is private to another module: include that module\'s public header')
            return
    owners = sorted({other.module for other in tree.private
                     if other.is_header and other.module and other.name.endswith("/" + name)})
    if owners:
        tree.report(file, line, f'"{name}" is private to {", ".join(owners)}: include a public header of it instead')
    else:
        tree.report(file, line, f'"{name}" is not in src/{file.module}: name it from this folder, the '
                                "module's or src, or add the file")


def check_library_include(tree, file, line, name):
    library = next((one for one in LIBRARIES if re.fullmatch(one.headers, name)), None)
    if library is None:
        if not SYSTEM_HEADERS.fullmatch(name):
            tree.report(file, line, f"<{name}> belongs to no library in the table: do without it, or give the library "
                                    "a folder in tools/check_layers.py")
        return
    if file.is_public:
        tree.report(file, line, f"a public header includes {library.name}'s <{name}>: hide it in a source file in "
                                f"{' or '.join(library.folders)}")
    elif not file.name.startswith(library.folders):
        tree.report(file, line, f"{library.name}'s <{name}> stays in {' and '.join(library.folders)}: use what these "
                                "offer, or move this code there")


def check_one_file_libraries(tree):
    for library in LIBRARIES:
        if not library.one_file:
            continue
        users = [(file, line) for file in tree.private if file.name.startswith(library.folders)
                 for line, _, name in file.includes() if re.fullmatch(library.headers, name)]
        first = users[0][0] if users else None
        for file, line in users:
            if file is not first:
                tree.report(file, line, f"{library.name} is used by one file only, which is {first.name}: call that")


def check_public_headers(tree):
    """A header is public because another module includes it, or because such a header needs it; what the topmost module
    has is for programs outside."""
    by_name = {file.name.removeprefix("include/"): file for file in tree.public}
    used = set()
    wanted = [by_name[name] for file in tree.ours for _, _, name in file.includes()
              if name in by_name and by_name[name].module != file.module]
    while wanted:
        header = wanted.pop()
        if header.name in used:
            continue
        used.add(header.name)
        wanted += [by_name[name] for _, _, name in header.includes() if name in by_name]
    for name, header in sorted(by_name.items()):
        if header.module not in ("base", "app") and header.name not in used:
            tree.report(header, 1, f"no other module includes it: move it to src/{header.module}")

    listing = tree.root / HEADER_LIST
    listed = set(re.findall(r"[\w/]+\.hpp", listing.read_text(encoding="utf-8"))) if listing.is_file() else set()
    for name, header in sorted(by_name.items()):
        if name.removeprefix("tutti/") not in listed:
            tree.report(header, 1, f"is not installed, nor compiled alone: add its name to {HEADER_LIST}")


def check_preprocessor(tree):
    for file in tree.ours:
        for number, line in enumerate(file.code_lines, 1):
            if CONDITIONAL.match(line):
                tree.report(file, number, f"'{line.strip()}': choose between source files in CMake instead")
            if PRAGMA_OPENMP.match(line) and file.name != OPENMP_WORKERS:
                tree.report(file, number, "OpenMP in our own code blinds the thread sanitizer: use std::thread")
        if file.is_header and not any(line.strip() == "#pragma once" for line in file.code_lines):
            tree.report(file, 1, "a header needs '#pragma once'")


def check_names(tree):
    for file in tree.ours + tree.tests:
        parts = pathlib.PurePosixPath(file.name).with_suffix("").parts
        for word in {word for part in parts for word in part.split("_")} & EMPTY_NAMES:
            tree.report(file, 1, f"'{word}' is too general: name the file after its main type")


def check_types(tree):
    """Two types of one name may be in different sources, and the linker then mixes up their members."""
    owners = {}
    for file in tree.ours:
        scope = ""
        for number, line in enumerate(file.code_lines if file.is_header else [], 1):
            if match := NAMESPACE.match(line):
                scope = match[1]
            elif match := TYPE.match(line):
                owner = owners.setdefault((scope, match[1]), file)
                if owner is not file:
                    tree.report(file, number, f"{owner.name} has another type {match[1]}: rename one")


def check_columns(tree):
    """Checks all files: clang-format does not reflow comments, and no other tool checks CMake's files."""
    for file in tree.ours + tree.tests + tree.builds + tree.scripts:
        for number, line in enumerate(file.text.split("\n"), 1):
            if len(line) > COLUMNS:
                tree.report(file, number, f"{len(line)} columns, the limit is {COLUMNS}: wrap the line")


def check(root):
    """Returns the findings of a tree as (path, line, text), in order."""
    tree = Tree(root)
    for rule in (check_modules, check_one_file_libraries, check_public_headers, check_preprocessor, check_names,
                 check_types, check_columns):
        rule(tree)
    return sorted(tree.findings), len(tree.ours) + len(tree.tests)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent, help="the checkout; default: this one")
    root = parser.parse_args().root.resolve()
    findings, files = check(root)
    for path, line, what in findings:
        print(f"{path}:{line}: {what}")
    if files == 0:
        sys.exit(f"{root}: no C++ files in src, include or tests: give the root of a checkout")
    print(f"layers: {files} files, {len(findings) or 'no'} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
