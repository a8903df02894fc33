"""Packs a build with everything it needs except glibc, the C++ runtime and CUDA, to run in any folder elsewhere.

The archive has bin/ (trainer, test programs, Open MPI's launcher), lib/ (our libraries and all their dependencies),
Open MPI's and PMIx's plug-ins, and bundle.json: the tests with their commands, and the libraries that the other
machine must have. It needs only an x86-64 Linux with a glibc at least as new. In a rehearsal, the library in standin/,
which simulates a GPU, takes the place of that of CUDA.
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

CUDA_CODE = "libtutti_cuda.so"
RECIPE = pathlib.Path(__file__).resolve().parents[2] / "jobs/fashion-mnist-93.toml"
# What computes on the CPU; those that need other instructions than the build machine's may not exist there.
PROCESSOR_TESTS = ("backend_layer_tests", "backend_bf16_tests", "backend_tests", "nn_tests", "train_tests")
PATCHELF_REMEDY = "patchelf is missing: tools/setup --dev"
# Plug-ins of other launchers, networks and tools, which a single node does not need.
UNWANTED_PLUGIN = re.compile(r"openib|ucx|ofi|psm|slurm|gridengine|flux|jsm|monitoring|memheap|spml|sshmem|scoll|"
                             r"atomic|vprotocol|simulator|treematch")
LEFT_TO_THE_TARGET = re.compile(
    r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|nss_[a-z]+|stdc\+\+|gcc_s)\.so|"
    r"lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvJitLink|nvToolsExt|cufft|curand|cusparse|cusolver)[._]")
CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvJitLink)\.so")


def output_of(*command: object) -> str:
    try:
        return subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True).stdout
    except FileNotFoundError:
        sys.exit(PATCHELF_REMEDY if command[0] == "patchelf" else f"{command[0]} is not installed: tools/setup")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, command))} failed: {error.stderr.strip()}")


def program_path(*names: str) -> pathlib.Path:
    for name in names:
        if found := shutil.which(name):
            return pathlib.Path(found).resolve()
    sys.exit(f"{names[0]} is not installed: tools/setup")


def is_elf(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def open_mpi_folder(kind: str) -> pathlib.Path:
    return pathlib.Path(output_of("ompi_info", "--path", kind, "--parsable").splitlines()[-1].split(":")[2])


class Bundle:
    """The folder of the bundle while it is being filled."""

    def __init__(self, build: pathlib.Path, root: pathlib.Path):
        self.build = build
        self.root = root
        for folder in ("bin", "lib/openmpi", "lib/pmix", "lib/none", "standin", "share", "etc"):
            (root / folder).mkdir(parents=True)

    def add(self, source: pathlib.Path, folder: str, name: str = "") -> None:
        target = self.root / folder / (name or source.name)
        shutil.copyfile(source, target)
        target.chmod(0o755)

    def add_built(self, path: pathlib.Path, folder: str) -> None:
        if not path.is_file():
            sys.exit(f"{path} is not built: cmake --build {self.build}")
        self.add(path, folder)

    def elves(self) -> list[pathlib.Path]:
        return [path for path in sorted(self.root.rglob("*")) if path.is_file() and is_elf(path)]

    def word(self, text: str) -> str:
        """Translates a word of a test's command or environment to the bundle, and adds its files of the build."""
        if "=" in text and not text.startswith("/"):
            name, _, value = text.partition("=")
            return f"{name}={self.word(value)}"
        path = pathlib.Path(text)
        if re.fullmatch(r"(mpiexec|mpirun|orterun)(\.\w+)?", path.name) and path.is_absolute():
            return "{bundle}/bin/mpirun"
        if path.is_absolute() and path.is_relative_to(self.build):
            folder = "lib" if ".so" in path.name else "bin"
            self.add_built(path, folder)
            return f"{{bundle}}/{folder}/{path.name}"
        return text

    def add_tests(self) -> list[dict]:
        listing = json.loads(output_of("ctest", "--test-dir", self.build, "-L", "^gpu$", "--show-only=json-v1"))
        tests = []
        for test in listing["tests"]:
            properties = {one["name"]: one["value"] for one in test.get("properties", [])}
            tests.append({"name": test["name"], "command": [self.word(word) for word in test["command"]],
                          "seconds": properties.get("TIMEOUT", 120),
                          "environment": [self.word(word) for word in properties.get("ENVIRONMENT", [])
                                          if not word.startswith(("LSAN_", "TSAN_"))]})
        return tests

    def add_processor_tests(self) -> list[str]:
        names = [name for name in PROCESSOR_TESTS if (self.build / "tests" / name).is_file()]
        for name in names:
            self.add(self.build / "tests" / name, "bin")
        return names

    def add_ours(self) -> None:
        self.add_built(self.build / "trainer", "bin")
        self.add(RECIPE, "share")
        self.add_built(self.build / "tests/standin" / CUDA_CODE, "standin")
        for library in self.build.glob("libtutti*.so"):  # that of CUDA is opened at run time: no program names it
            soname = output_of("patchelf", "--print-soname", library).strip() or library.name
            self.add(library.resolve(), "lib", soname)

    def add_open_mpi(self) -> None:
        self.add(program_path("orterun", "mpirun"), "bin", "mpirun")
        self.add(program_path("orted"), "bin", "orted")
        for plugin in open_mpi_folder("pkglibdir").glob("mca_*.so"):
            if not UNWANTED_PLUGIN.search(plugin.name):
                self.add(plugin, "lib/openmpi")
        shutil.copytree(open_mpi_folder("pkgdatadir"), self.root / "share/openmpi",
                        ignore=shutil.ignore_patterns("*wrapper-data*", "amca-param-sets"))
        shutil.copytree(open_mpi_folder("sysconfdir"), self.root / "etc/openmpi")
        for plugin in (self.root / "lib/openmpi").glob("mca_pmix_*.so"):
            if library := re.search(r"libpmix\S* => (\S+)", output_of("ldd", plugin)):
                self.add_pmix(pathlib.Path(library[1]).resolve().parent)
                return

    def add_pmix(self, folder: pathlib.Path) -> None:
        for plugin in (folder / "pmix").glob("*.so"):
            if "slurm" not in plugin.name:
                self.add(plugin, "lib/pmix")
        if (folder / "../share/pmix").is_dir():
            shutil.copytree(folder / "../share/pmix", self.root / "share/pmix")

    def add_libraries(self) -> None:
        """ldd lists indirect dependencies, too, so one pass over all files is enough."""
        needed, missing = {}, set()
        for line in output_of("ldd", *self.elves()).splitlines():
            match = re.match(r"\s+(\S+) => (/\S+|not found)", line)
            if not match or LEFT_TO_THE_TARGET.match(match[1]) or (self.root / "lib" / match[1]).exists():
                continue
            if match[2] == "not found":
                missing.add(match[1])
            else:
                needed[match[1]] = pathlib.Path(match[2])
        if missing:
            sys.exit(f"libraries are not found here: {', '.join(sorted(missing))}")
        for name, path in needed.items():
            self.add(path.resolve(), "lib", name)

    def make_relocatable(self) -> None:
        """Makes every file look for its libraries relative to itself, so that the folder can be moved."""
        for path in self.elves():
            subprocess.run(["strip", "--strip-unneeded", path], check=False, capture_output=True)
            folder = path.parent.relative_to(self.root).as_posix()
            origin = {"bin": "$ORIGIN/../lib", "lib": "$ORIGIN", "standin": "$ORIGIN/../lib:$ORIGIN"}.get(
                folder, "$ORIGIN/..")
            output_of("patchelf", "--force-rpath", "--set-rpath", origin, path)

    def needs(self) -> dict[str, list[str]]:
        """The CUDA libraries by soname, and the newest symbol versions of the C and C++ runtimes."""
        text = output_of("objdump", "-p", *self.elves())
        versions = {}
        for family, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)", text):
            versions[family] = max(versions.get(family, ()), tuple(map(int, version.split("."))))
        cuda = {name for name in re.findall(r"NEEDED\s+(\S+)", text) if CUDA_LIBRARY.match(name)}
        return {"runtimes": [f"{family}_{'.'.join(map(str, version))}" for family, version in sorted(versions.items())],
                "cuda": sorted(cuda)}


def commit_of(folder: pathlib.Path) -> str:
    result = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False)
    return result.stdout.strip() or "unknown"


def make_bundle(build: pathlib.Path, root: pathlib.Path) -> None:
    """Replaces `root`, fills it, and writes root.tar.xz next to it."""
    for tool in ("patchelf", "--version"), ("objdump", "--version"):
        output_of(*tool)
    build, root = build.resolve(), root.resolve()
    archive = root.with_name(root.name + ".tar.xz")
    if root.exists() and not (root / "bundle.json").is_file():
        sys.exit(f"{root} is there and no bundle: give a folder that may be replaced")
    shutil.rmtree(root, ignore_errors=True)
    bundle = Bundle(build, root)
    bundle.add_ours()
    tests = bundle.add_tests()
    processor_tests = bundle.add_processor_tests()
    bundle.add_open_mpi()
    bundle.add_libraries()
    bundle.make_relocatable()
    facts = {"made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
             "commit": commit_of(pathlib.Path(__file__).parent), "needs": bundle.needs(), "tests": tests,
             "processor_tests": processor_tests}
    (root / "bundle.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    with tarfile.open(archive, "w:xz") as file:
        file.add(root, root.name)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB, {size / 2**20:.0f} MiB unpacked, {len(tests)} tests")
    print(f"needs there: {', '.join(facts['needs']['runtimes'] + facts['needs']['cuda'])}")


def unpack(source: pathlib.Path, folder: pathlib.Path, for_rehearsal: bool = False) -> pathlib.Path:
    """The root of the bundle: its copy in `folder`, or `source` itself if that is unpacked already."""
    if source.is_dir():
        root = shutil.copytree(source, folder / "bundle") if for_rehearsal else source.resolve()
    else:
        with tarfile.open(source) as file:
            file.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else file.extractall(folder)
        root = folder / os.path.commonpath([path.name for path in folder.iterdir()])
    if not (root / "bundle.json").is_file():
        sys.exit(f"{source} is no bundle: make one by tools/gpu-day bundle")
    if for_rehearsal:
        for path in (root / "standin").iterdir():
            path.replace(root / ("lib" if ".so" in path.name else "bin") / path.name)
    return root


def facts_of(root: pathlib.Path) -> dict:
    return json.loads((root / "bundle.json").read_text(encoding="utf-8"))
