"""Compiles a kernel with an array on its stack, and checks that only this one is reported. Takes nvcc's path."""

import json
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_spills.py"
NVCC = sys.argv.pop()

SOUND = """__global__ void sound(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= 2;
}
"""
STACKED = """__global__ void stacked(float* values, int count) {
  float local[64];
  for (int i = 0; i < 64; ++i) local[i] = values[i];
  for (int i = 0; i < count; ++i) local[static_cast<int>(values[i]) % 64] += i;
  for (int i = 0; i < 64; ++i) values[i] = local[i];
}
"""


class SpillCheck(Programs):
    def check(self, sources):
        commands = []
        for name, text in sources.items():
            (self.root / name).write_text(text, encoding="utf-8")
            compiler = f"ccache {NVCC} -forward-unknown-to-host-compiler" if name.endswith(".cu") else "c++"
            commands.append({"directory": str(self.root), "file": str(self.root / name),
                             "command": f"{compiler} -O3 --generate-code=arch=compute_80,code=[sm_80] "
                                        f"-MD -MT {name}.o -MF {name}.d -c {name} -o {name}.o"})
        (self.root / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
        return subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True, check=False)

    def test_registers_alone_pass(self):
        done = self.check({"sound.cu": SOUND, "host.cpp": "int x;\n"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 functions of 1 files, no findings", done.stdout)

    def test_a_stack_is_a_finding(self):
        done = self.check({"sound.cu": SOUND, "bad.cu": STACKED})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("bad.cu: stacked(float*, int) has a stack frame of 256 bytes", done.stdout)
        self.assertIn("2 functions of 2 files, 1 findings", done.stdout)

    def test_what_does_not_compile_is_no_pass(self):
        self.assertNotEqual(self.check({"wrong.cu": "__global__ int wrong();"}).returncode, 0)

    def test_a_build_without_kernels_is_no_pass(self):
        done = self.check({"host.cpp": "int x;\n"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("configured with CUDA", done.stderr)


if __name__ == "__main__":
    unittest.main()
