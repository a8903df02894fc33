"""Bundles a build, and rehearses a whole GPU day with it on a machine that has only Python, libc and libstdc++.

As root, that machine is a chroot; otherwise, it is an empty environment.

    gpu_rehearsal_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))

from gpu_day import bundle, parts

BUILD = sys.argv.pop(1)
IS_ROOT = os.geteuid() == 0
PYTHON = pathlib.Path(sys.executable).resolve()
MODULES = pathlib.Path(sysconfig.get_path("stdlib"))
# In a namespace of its own, which takes the mounts with it.
ENTER = """mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" &&
mount --bind "$2" "$1$2" && root=$1 && shift 2 && exec chroot "$root" "$@" """


def make_machine(root: pathlib.Path, bundled: list[pathlib.Path]) -> None:
    """Python, and the libraries that the bundle expects, without CUDA's."""
    for folder in ("dev", "proc", "sys", "tmp", str(MODULES)[1:]):
        (root / folder).mkdir(parents=True)
    left = [line for line in bundle.output_of("ldd", *bundled).splitlines()
            if bundle.LEFT_TO_THE_TARGET.match(line.strip()) and not bundle.CUDA_LIBRARY.match(line.strip())]
    of_python = bundle.output_of("ldd", PYTHON, *MODULES.glob("lib-dynload/*.so")).splitlines()
    for path in {str(PYTHON), *re.findall(r"(/\S+) \(0x", "\n".join(left + of_python))}:
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


class Day(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        packed = pathlib.Path(folder.name) / "gpu-bundle"
        subprocess.run([sys.executable, TOOLS / "gpu-day", "bundle", BUILD, packed], check=True)
        cls.machine = pathlib.Path(folder.name) / "machine"
        make_machine(cls.machine, [path for path in packed.rglob("*") if path.is_file() and bundle.is_elf(path)])
        (cls.machine / "carried").mkdir()
        for name in ("gpu_day", "peers"):
            shutil.copytree(TOOLS / name, cls.machine / "carried/tools" / name)
        shutil.copy(TOOLS / "gpu-day", cls.machine / "carried/tools")
        shutil.copy(f"{packed}.tar.xz", cls.machine / "carried")
        shutil.rmtree(packed)

    def rehearse(self, *names, **variables):
        """The status, and the outcome of each part."""
        carried = "/carried" if IS_ROOT else f"{self.machine}/carried"
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "bash", self.machine,
                 MODULES]
        result = subprocess.run([*(enter if IS_ROOT else []), PYTHON, f"{carried}/tools/gpu-day", "run", "--rehearse",
                                 "--bundle", f"{carried}/gpu-bundle.tar.xz", "--out", f"{carried}/results", *names],
                                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}, cwd="/", check=False)
        parts_done = json.loads((self.machine / "carried/results/results.json").read_text(encoding="utf-8"))
        return result.returncode, {name: one["outcome"] for name, one in parts_done.items()}

    def test_passes_in_all_parts(self):
        status, outcomes = self.rehearse()
        self.assertEqual({part.name: "ran" for part in parts.PARTS}, outcomes)
        self.assertEqual(0, status)

    def test_fails_without_a_gpu(self):
        status, outcomes = self.rehearse("graphs", CUDA_VISIBLE_DEVICES="-1")
        self.assertRegex(outcomes["graphs"], "^failed: .* has no GPU")
        self.assertEqual(1, status)


if __name__ == "__main__":
    unittest.main()
