"""The command line of tools/exporting/onnx_client.py, with stand-ins for the packages that it needs: tests/peers has
them, and compares its answers."""

import json
import pathlib
import subprocess
import sys
import unittest

from programs import Programs

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "tools/exporting/onnx_client.py"
CALLED = """import sys
sys.path.insert(0, sys.argv.pop(1))
import onnx_client
onnx_client.classify = lambda network, paths: ((path, "cat", 0.5) for path in paths)
sys.exit(onnx_client.main(sys.argv[1:]))
"""


class CommandLine(Programs):
    def call(self, *words, has_packages=False):
        program = ["-c", CALLED, CLIENT.parent] if has_packages else ["-S", CLIENT]  # -S: no installed packages
        done = subprocess.run([sys.executable, "-B", *program, *words], cwd=self.root, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def test_explains_itself_without_any_package(self):
        status, printed, errors = self.call("--help")
        self.assertEqual((0, ""), (status, errors))
        self.assertIn("onnx_client.py F.onnx IMAGE ..", printed)
        for words in ([], ["F.onnx"]):
            status, printed, errors = self.call(*words)
            self.assertEqual((64, ""), (status, printed))
            self.assertIn("give an ONNX file and the images to classify", errors)

    def test_names_what_is_missing(self):
        self.assertEqual((65, "", "onnx_client.py: F.onnx: No such file or directory\n"), self.call("F.onnx", "a.png"))
        (self.root / "F.onnx").touch()
        self.assertIn("F.onnx.json: No such file", self.call("F.onnx", "a.png")[2])
        (self.root / "F.onnx.json").write_text(json.dumps({"class_names": []}), encoding="utf-8")
        (self.root / "empty").mkdir()
        self.assertIn("no JPEG, PNG or TIFF files in the folder 'empty'", self.call("F.onnx", "empty")[2])
        (self.root / "a.png").touch()
        status, _, errors = self.call("F.onnx", "a.png")
        self.assertEqual(64, status)
        self.assertIn("pip install numpy pillow onnxruntime", errors)

    def test_takes_folders(self):
        for name in ("F.onnx", "F.onnx.json", "new/b.JPG", "new/deep/a.png", "new/notes.txt", "c.jpeg"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).touch()
        status, printed, errors = self.call("F.onnx", "c.jpeg", "new", has_packages=True)
        self.assertEqual((0, ""), (status, errors))
        self.assertEqual([f"{name}: cat 0.500000" for name in ("c.jpeg", "new/b.JPG", "new/deep/a.png")],
                         printed.splitlines())


if __name__ == "__main__":
    unittest.main()
