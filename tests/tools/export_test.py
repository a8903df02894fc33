"""Converts trained networks from checkpoints and back again, and lets trainer read the result."""

import argparse
import contextlib
import hashlib
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import zipfile
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TRAINER = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else \
    TOOLS.parent / "trainer"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))

import numpy as np

from exporting import checkpoint as checkpoints
from exporting import command_line, data_file, digests, model, onnx_file, protobuf, state_dicts
from exporting.errors import ExportError
from exporting.functions import FUNCTIONS
from exporting.onnx_messages import MODEL

DATA = "synthetic:64x1x28x28:10"
EVERY_TYPE = """
name = "every type"
[[layer]]
name = "first"
type = "conv2d"
channels = 4
kernel = 3
[[layer]]
name = "second"
type = "conv2d"
channels = 4
kernel = 3
padding = 2
groups = 2
dilation = 2
init = "dirac"
frozen = ["weight"]
[[layer]]
name = "pool"
type = "max-pool2d"
kernel = 3
padding = 1
[[layer]]
name = "mean"
type = "average-pool2d"
kernel = 2
stride = 1
[[layer]]
name = "norm"
type = "batch-norm"
residual = "mean"
add = true
momentum = 0.25
epsilon = 1e-3
[[layer]]
name = "sum"
type = "add"
input = "mean"
residual = "norm"
relu = true
""" + "".join(f'''[[layer]]
name = "a-{name}"
type = "{name}"
{"factor = 0.25" if function.takes_factor() else ""}
''' for name, function in FUNCTIONS.items()) + """
[[layer]]
name = "all"
type = "global-average-pool"
[[layer]]
name = "drop"
type = "dropout"
rate = 0.25
[[layer]]
name = "head"
type = "linear"
units = "classes"
bias = false
"""


def trainer(*words):
    done = subprocess.run([TRAINER, *map(str, words)], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"trainer {words[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


class Trained(unittest.TestCase):
    """One training for all tests: lenet, normalised, two steps."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.trained = pathlib.Path(folder.name) / "run"
        cls.output = trainer("--data", DATA, "--normalize", "0.5/0.25", "--steps", 2, "--batch-size", 32,
                             "--test-every", 0, "--threads", 1, "--out", cls.trained)
        cls.file = cls.trained / "checkpoints/step-00000002.h5"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def export(self, *words):
        """Status, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = command_line.main([str(word) for word in words])
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), err.getvalue()

    def exported(self, *words):
        status, out, err = self.export(*words)
        self.assertEqual((0, ""), (status, err))
        return out

    def test_takes_the_checkpoint_of_a_step_or_the_best_and_prints_which(self):
        out = self.exported(f"{self.trained}@2", "--to-onnx", self.root / "a.onnx")
        self.assertIn(f"{self.file}: lenet after 2 steps", out)
        run = self.root / "evaluated"
        trainer("--data", DATA, "--validation-ratio", 0.5, "--epochs", 2, "--batch-size", 32, "--lr", 0, "--threads", 1,
                "--out", run)
        out = self.exported(f"{run}@best", "--to-onnx", self.root / "b.onnx")
        self.assertIn("step-00000001.h5: lenet after 1 steps", out)  # the second is no better
        status, _, err = self.export(f"{run}@7", "--to-onnx", self.root / "c.onnx")
        self.assertEqual(1, status)
        self.assertIn("it holds no checkpoint of step 7 (@7); there are those of steps 1, 2", err)

    def test_keeps_the_folder_in_a_trainers_path(self):
        self.assertEqual(pathlib.Path("trainer").absolute(), command_line.program("./trainer"))
        self.assertEqual("sh", command_line.program("sh").name)


class Checkpoint(Trained):
    def test_is_read_with_the_digest_that_the_run_has_printed(self):
        read = checkpoints.read(self.file)
        self.assertIn(f"weights {checkpoints.weights_digest(read)}", self.output)
        self.assertEqual((2, "lenet"), (read.step, read.model.name))
        self.assertEqual((20, 1, 3, 3), read.array("/parameters/conv1/weight").shape)

    def test_of_a_run_is_the_newest_good_one(self):
        read = checkpoints.read(self.trained)
        self.assertEqual(self.file, read.path)

    def test_that_is_damaged_is_refused_by_name(self):
        content = bytearray(self.file.read_bytes())
        (self.root / self.file.name).write_bytes(content[:1000] + b"x" + content[1001:])
        with self.assertRaisesRegex(ExportError, "step-00000002.h5: it is damaged: its structures do not have"):
            checkpoints.read(self.root / self.file.name)
        (self.root / self.file.name).write_bytes(content[:-3])
        with self.assertRaisesRegex(ExportError, "step-00000002.h5: it has no seal"):
            checkpoints.read(self.root / self.file.name)
        content[content.index(checkpoints.read(self.file).array("/parameters/dense1/bias").tobytes())] ^= 1
        (self.root / self.file.name).write_bytes(content)
        with self.assertRaisesRegex(ExportError, "step-00000002.h5: it is damaged: its values do not have the digests"):
            checkpoints.read(self.root / self.file.name)
        manifest = self.file.with_suffix(".json")
        (self.root / manifest.name).write_bytes(manifest.read_bytes())
        with self.assertRaisesRegex(ExportError, "step-00000002.h5: it is damaged: its SHA-256"):
            checkpoints.read(self.root / self.file.name)
        with self.assertRaisesRegex(ExportError, "no checkpoint in it is good: .*SHA-256"):
            checkpoints.read(self.root)

    def test_is_distinguished_from_other_files(self):
        other = self.root / "other.h5"
        with self.assertRaisesRegex(ExportError, "other.h5: No such file"):
            checkpoints.read(other)
        other.write_bytes(b"no HDF5 at all")
        with self.assertRaisesRegex(ExportError, "other.h5: it has no seal: .* --seal NEW.h5"):
            checkpoints.read(other)
        data_file.write_images(other, np.zeros((2, 1, 4, 4), np.uint8), 2)
        with self.assertRaisesRegex(ExportError, "other.h5: it is no checkpoint"):
            checkpoints.read(other)
        with self.assertRaisesRegex(ExportError, "holds no checkpoints: give a run's folder"):
            checkpoints.read(self.root)

    def test_with_invalid_texts_is_refused(self):
        read = checkpoints.read(self.file)
        options, data = read.text("/run/configuration"), read.text("/run/data")
        for normalize in ("0.5", "a/b", "nan/1", "0.5/0", "0.5/-1", "1,2/1", "__import__('os')/1"):
            read.values["/run/configuration"] = options.replace('"0.5/0.25"', f'"{normalize}"')
            with self.subTest(normalize), self.assertRaisesRegex(ExportError, "normalize = "):
                read.statistics(1)
        for wrong in ("[1,28,28.5]", "[28,28]", "[1,-28,28]", '"x"', "[true,28,28]"):
            read.values["/run/data"] = data.replace("[1,28,28]", wrong)
            with self.subTest(wrong), self.assertRaisesRegex(ExportError, "/run/data is not that"):
                read.trained_on()
        for wrong in ("[" * 100000, '{"image": [1, 2, 3]}', "3"):
            read.values["/run/data"] = wrong
            with self.assertRaisesRegex(ExportError, "/run/data is not that"):
                read.trained_on()

    def test_with_values_that_are_not_finite_is_not_written(self):
        read = checkpoints.read(self.file)
        read.array("/parameters/conv1/bias")[3] = np.nan
        read.path = self.root / "broken.h5"
        with self.assertRaisesRegex(ExportError, "conv1/bias holds values that are not finite"):
            checkpoints.write(read)
        self.assertEqual([], list(self.root.iterdir()))

    def test_that_cannot_be_written_leaves_nothing(self):
        read = checkpoints.read(self.file)
        read.path = self.root / "missing" / "F.h5"
        with self.assertRaisesRegex(ExportError, "F.h5: it cannot be written"):
            checkpoints.write(read)


class There(Trained):
    """And back."""

    def back(self):
        onnx, back = self.root / "F.onnx", self.root / "back.h5"
        self.exported(self.trained, "--to-onnx", onnx)
        self.assertIn("back.h5: lenet after 2 steps, weights", self.exported(onnx, "--to-checkpoint", back))
        return back

    def test_no_bit_has_changed(self):
        before, after = checkpoints.read(self.file), checkpoints.read(self.back())
        for place, value in before.values.items():
            if place.startswith("/optimizer/"):
                self.assertNotIn(place, after.values)
            elif isinstance(value, str):
                self.assertEqual(value, after.values[place], place)
            else:
                other = after.array(place)
                self.assertEqual((value.dtype, value.shape, value.tobytes()),
                                 (other.dtype, other.shape, other.tobytes()), place)

    def test_is_of_the_average_or_the_last_weights(self):
        run, onnx, back = (self.root / name for name in ("averaged", "F.onnx", "back.h5"))
        trainer("--data", DATA, "--steps", 3, "--batch-size", 32, "--ema", 0.9, "--test-every", 0, "--threads", 1,
                "--out", run)
        saved = checkpoints.read(run)
        for choice, group in (((), "averages"), (("ema",), "averages"), (("last",), "parameters")):
            self.exported(run, "--to-onnx", onnx, *("--weights" for _ in choice), *choice)
            self.exported(onnx, "--to-checkpoint", back)
            np.testing.assert_array_equal(checkpoints.read(back).array("/parameters/dense1/weight"),
                                          saved.array(f"/{group}/dense1/weight"))
        status, _, err = self.export(self.trained, "--to-onnx", onnx, "--weights", "ema")
        self.assertEqual(1, status)
        self.assertIn("it holds no average, since its run has no --ema", err)

    def test_trainer_finds_only_the_optimizer_missing(self):
        back = self.back()
        found = subprocess.run([TRAINER, "diff", self.file, back], capture_output=True, text=True, check=False)
        self.assertEqual(1, found.returncode, found.stderr)
        self.assertRegex(found.stdout, "/optimizer: 8 of 8 tensors differ, .*\n *only A has it")
        self.assertNotIn("/parameters", found.stdout)
        self.assertNotIn("progress", found.stdout)

    def test_trainer_evaluates_and_starts_from_the_result(self):
        back = self.back()
        lines = [trainer("eval", "--checkpoint", file, "--on", "train", "--quiet") for file in (self.file, back)]
        self.assertIn("train loss", lines[0])
        self.assertIn(lines[0], lines[1])
        self.assertNotIn("warning", lines[1])
        self.assertIn("initialized from", trainer("--data", DATA, "--init-from", back, "--steps", 1,
                                                            "--batch-size", 32, "--test-every", 0))
        facts = self.root / "facts.json"
        trainer("inspect", back, "--json", facts)
        self.assertEqual([], json.loads(facts.read_text(encoding="utf-8"))["optimizer"])

    def test_a_state_in_multiple_files_is_one_checkpoint(self):
        whole = checkpoints.read(self.file)
        first = {place: value for place, value in whole.values.items() if "dense" not in place}
        rest = {place: value for place, value in whole.values.items() if "conv" not in place}
        manifest = {"files": []}
        for name, values in (("step-00000002.h5", first), ("step-00000002.1.h5", rest)):
            lines = checkpoints.digest_lines(values)
            checkpoints.write_datasets(self.root / name, values | {checkpoints.DIGESTS: lines})
            sha256 = hashlib.sha256((self.root / name).read_bytes()).hexdigest()
            manifest["files"].append({"file": name, "sha256": sha256})
        (self.root / "step-00000002.json").write_text(json.dumps(manifest), encoding="utf-8")
        self.assertEqual(whole.values.keys(), checkpoints.read(self.root).values.keys())


class Onnx(Trained):
    def message(self, *words):
        path = self.root / "F.onnx"
        output = self.exported(self.trained, "--to-onnx", path, *words)
        return protobuf.decode(MODEL, path.read_bytes()), output

    def extents(self, message):
        dims = message["graph"]["input"][0]["type"]["tensor_type"]["shape"]["dim"]
        return [dim.get("dim_value", dim.get("dim_param")) for dim in dims]

    def test_has_a_node_for_each_operation_of_a_layer(self):
        message, output = self.message()
        graph = message["graph"]
        self.assertEqual(["Conv", "Relu", "MaxPool", "Conv", "Relu", "MaxPool", "Flatten", "Gemm", "Relu", "Gemm"],
                         [node["op_type"] for node in graph["node"]])
        self.assertEqual(["conv1", "conv1/relu", "pool1"], [node["name"] for node in graph["node"][:3]])
        self.assertEqual(["image", "conv1/weight", "conv1/bias"], graph["node"][0]["input"])
        self.assertEqual("logits", graph["output"][0]["name"])
        self.assertIn("(pixel / 255 - M) / S, M/S = 0.5/0.25", output)

    def test_describes_its_input_images(self):
        message, output = self.message()
        self.assertEqual(["batch", 1, 28, 28], self.extents(message))
        self.assertIn("image (batch x 1 x 28 x 28; ", output)
        self.assertEqual(["batch", 1, 29, 28], self.extents(self.message("--image", "1x29x28")[0]))
        status, _, err = self.export(self.trained, "--to-onnx", self.root / "F.onnx", "--image", "1x32x32")
        self.assertEqual(1, status)
        self.assertIn("--image 1x32x32 does not fit the network of", err)

    def test_has_the_image_rule_inside_and_in_another_file(self):
        message, output = self.message()
        text = (self.root / "F.onnx.json").read_text(encoding="utf-8")
        self.assertIn("F.onnx.json: how images are resized", output)
        metadata = {entry["key"]: entry["value"] for entry in message["metadata_props"]}
        self.assertEqual(text, metadata["image_rule"] + "\n")
        rule = json.loads(text)
        self.assertEqual(([1, 28, 28], 32, [0.5], [0.25], False, 10),
                         (rule["image"], rule["resize"]["short_side"], rule["mean"], rule["deviation"],
                          rule["normalize_in_graph"], rule["classes"]))
        self.message("--with-normalize")
        self.assertTrue(json.loads((self.root / "F.onnx.json").read_text(encoding="utf-8"))["normalize_in_graph"])

    def test_has_the_rule_of_runs_that_saw_whole_short_sides_or_unturned_images(self):
        other = checkpoints.read(self.file)
        other.path = self.root / "whole.h5"
        other.values["/run/data"] = other.text("/run/data").replace('"keeps_short_side":false',
                                                                    '"keeps_short_side":true')
        other.values["/run/configuration"] = other.text("/run/configuration").replace('exif = "on"', 'exif = "off"')
        checkpoints.write(other)
        for source, expected in ((self.file, (32, True)), (other.path, (28, False))):
            self.exported(source, "--to-onnx", self.root / "F.onnx")
            rule = json.loads((self.root / "F.onnx.json").read_text(encoding="utf-8"))
            self.assertEqual(expected, (rule["resize"]["short_side"], rule["exif"]))
            self.assertEqual(expected[1], "EXIF" in rule["decoding"])

    def test_of_an_early_checkpoint_takes_any_images_that_fit(self):
        early, path = checkpoints.read(self.file), self.root / "early.onnx"
        del early.values["/run/data"]
        early.path = self.root / "early.h5"
        checkpoints.write(early)
        self.assertIn("image (batch x 1 x height x width; ", self.exported(early.path, "--to-onnx", path))
        message = protobuf.decode(MODEL, path.read_bytes())
        self.assertEqual(["batch", 1, "height", "width"], self.extents(message))  # 28 or 29
        self.assertIsNone(json.loads((self.root / "early.onnx.json").read_text(encoding="utf-8"))["resize"])

    def test_normalises_on_request(self):
        message, output = self.message("--with-normalize")
        graph = message["graph"]
        self.assertEqual(["Sub", "Div", "Conv"], [node["op_type"] for node in graph["node"][:3]])
        arrays = {array["name"]: onnx_file.array_of(array, "") for array in graph["initializer"]}
        self.assertEqual([[[[0.5]]]], arrays["image/mean"].tolist())
        self.assertEqual([[[[0.25]]]], arrays["image/deviation"].tolist())
        self.assertIn("; pixel / 255) -> logits", output)

    def test_of_other_programs_is_not_converted_back(self):
        path, target = self.root / "F.onnx", self.root / "F.h5"
        for content, fault in ((b"\x0a\x05ab", "cut short"), (b"%PDF-1.4 of something else", "F.onnx: "),
                               (protobuf.encode(MODEL, {"ir_version": 8}), "tools/export has not written it")):
            path.write_bytes(content)
            status, out, err = self.export(path, "--to-checkpoint", target)
            self.assertEqual((1, ""), (status, out))
            self.assertIn(fault, err)
        self.assertFalse(target.exists())

    def test_without_one_of_its_arrays_is_not_converted_back(self):
        message, _ = self.message()
        message["graph"]["initializer"] = [array for array in message["graph"]["initializer"]
                                           if array["name"] != "conv2/bias"]
        path = self.root / "less.onnx"
        path.write_bytes(protobuf.encode(MODEL, message))
        status, _, err = self.export(path, "--to-checkpoint", self.root / "F.h5")
        self.assertEqual(1, status)
        self.assertIn("less.onnx: it has no array conv2/bias any more", err)


class Models(unittest.TestCase):
    def test_have_all_types_of_layers(self):
        read = model.parse(EVERY_TYPE, "F")
        self.assertEqual(set(model.SPECS), {layer["type"] for layer in tomllib.loads(EVERY_TYPE)["layer"]})
        layers = {layer.name: layer for layer in read.layers}
        self.assertEqual(model.MaxPool2d(kernel=3, stride=3, padding=1), layers["pool"].spec)
        self.assertEqual(("mean", "norm"), (layers["sum"].source, layers["sum"].residual))
        self.assertEqual((model.IMAGE, "drop"), (layers["first"].source, layers["head"].source))
        self.assertEqual(["/statistics/norm/mean", "/statistics/norm/variance", "/parameters/head/weight"],
                         [place for _, _, place in read.arrays()][-3:])

    def test_have_the_types_of_layers_that_trainer_knows(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "none.toml"
            file.write_text('name = "n"\n[[layer]]\nname = "l"\ntype = "none"\n', encoding="utf-8")
            done = subprocess.run([TRAINER, "--model", file, "--data", DATA, "--dry-run"], capture_output=True,
                                  text=True, check=False, timeout=300)
        _, _, known = done.stderr.strip().partition("'none' is no layer type: ")
        self.assertEqual(list(model.SPECS), known.split(", "), done.stderr)

    def test_of_a_newer_trainer_are_refused_by_layer(self):
        for text, fault in ((EVERY_TYPE.replace('"dropout"', '"attention"'), "layer drop is of the type 'attention'"),
                            (EVERY_TYPE.replace("rate = 0.25", "rate = 0.25\nshape = 3"), "'shape'"),
                            ("name = 3 4", "cannot be read")):
            with self.assertRaisesRegex(ExportError, fault):
                model.parse(text, "F")

    def test_must_have_values_of_the_right_types(self):
        evil = "__import__('os').system('touch evil')"
        for right, wrong in (("rate = 0.25", f'rate = "{evil}"'), ("rate = 0.25", "rate = true"),
                             ("rate = 0.25", "rate = nan"), ("rate = 0.25", "rate = 1.0"),
                             ("kernel = 2", f'kernel = "{evil}"'), ("kernel = 2", "kernel = 2.5"),
                             ("stride = 1", "stride = [1]"), ("padding = 1", "padding = -1"),
                             ("channels = 4", "channels = 0"), ("bias = false", f'bias = "{evil}"'),
                             ("relu = true", "relu = 1"), ('units = "classes"', f'units = "{evil}"'),
                             ('name = "drop"', f'name = "{evil}"'), ('name = "drop"', "name = 3"),
                             ('name = "drop"', 'name = "image"'), ('name = "drop"', 'name = ".drop"'),
                             ('name = "drop"', 'name = "drop\\n"'), ('name = "drop"', 'name = "sum"'),
                             ('input = "mean"', f'input = "{evil}"'), ('residual = "norm"', 'residual = "head"'),
                             ('residual = "norm"', "residual = [1]"), ('name = "every type"', "name = 3")):
            self.assertIn(right, EVERY_TYPE)
            with self.subTest(wrong), self.assertRaisesRegex(ExportError, "^F: "):
                model.parse(EVERY_TYPE.replace(right, wrong, 1), "F")

    def test_built_in_are_understood(self):
        for file in sorted((TOOLS.parent / "jobs/models").glob("*.toml")):
            self.assertTrue(model.parse(file.read_text(encoding="utf-8"), file.name).layers)

    def test_determine_the_size_of_their_images(self):
        lenet = model.parse((TOOLS.parent / "jobs/models/lenet.toml").read_text(encoding="utf-8"), "lenet")
        shapes = {"/parameters/conv1/weight": (20, 3, 3, 3), "/parameters/conv2/weight": (50, 20, 5, 5),
                  "/parameters/dense1/weight": (128, 50 * 5 * 5), "/parameters/dense2/weight": (10, 128)}
        self.assertEqual([(3, side, side) for side in (30, 31, 32, 33)], model.fitting_images(lenet, shapes))
        self.assertTrue(model.fits(lenet, shapes, (3, 32, 33)))
        linear = model.parse('name = "l"\n[[layer]]\nname = "d"\ntype = "linear"\nunits = 2\n', "l")
        self.assertEqual([(3, 32, 32)], model.fitting_images(linear, {"/parameters/d/weight": (2, 3072)}))


class Words(Trained):
    def test_that_contradict_each_other_are_refused(self):
        for words, fault in ((["F.h5"], "choose the output: --to-onnx or --to-torch"),
                             (["F.onnx"], "choose the output: --to-checkpoint F.h5"),
                             (["F.onnx", "--to-torch", "F.pt"], "F.onnx becomes a checkpoint first"),
                             (["F.h5", "--to-checkpoint", "G.h5"], "--to-checkpoint needs an .onnx"),
                             (["F.h5", "--to-onnx", "F.onnx", "--module", "F.py"], "--module goes with --to-torch"),
                             (["F.pt", "--to-checkpoint", "G.h5"], "--like RUN goes with a state dict"),
                             (["F.h5", "--to-torch", "F.pt", "--with-normalize"], "a state dict alone"),
                             (["F.h5", "--to-onnx", "F.onnx", "--names", "torchvision"], "is for state dicts"),
                             (["F.h5", "--to-onnx", "F.onnx", "--classes", "a,b"], "--classes goes with a state dict"),
                             (["F.h5", "--to-onnx", "F.onnx", "--image", "28"], "--image")):
            status, out, err = self.export(*words)
            self.assertEqual((2, ""), (status, out), words)
            self.assertIn(fault, err)

    def bare(self, *more, **environment):
        """tools/export in a Python without packages, and in no other one but those that are given."""
        call = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); from peers import peer_python; " \
               f"peer_python.SYSTEM = {environment.pop('system', '/nonexistent')!r}; sys.argv = sys.argv[1:]; " \
               "from exporting import command_line; sys.exit(command_line.main())"
        kept = {name: value for name, value in os.environ.items() if name != "TUTTI_PYTHON"}
        return subprocess.run([sys.executable, "-I", "-S", "-c", call, "export", "F.h5", "--to-torch", "F.pt", *more],
                              env=kept | environment, capture_output=True, text=True, check=False)

    def python(self, name, script):
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def test_that_need_more_packages_name_them_and_the_remedies(self):
        done = self.bare(system=self.python("system", "exit 1"))
        self.assertEqual(1, done.returncode)
        self.assertIn("lacks numpy, h5py, torch: apt install python3-numpy python3-h5py python3-torch, or python3 -m "
                      "venv venv && venv/bin/pip install numpy h5py torch, then TUTTI_PYTHON=venv/bin/python",
                      done.stderr)
        self.assertEqual(1, len(done.stderr.splitlines()))

    def test_start_another_python_that_has_them(self):
        other = self.python("python", 'echo "other $*"')
        self.assertEqual("other export F.h5 --to-torch F.pt\n", self.bare(TUTTI_PYTHON=other).stdout)
        self.assertEqual("", self.bare(TUTTI_PYTHON=other).stderr)

    def test_start_the_systems_python_if_that_has_them(self):
        system = self.python("system", '[ "$1" = -c ] && [ "$3 $4 $5" = "numpy h5py torch" ] && exit 0\n'
                             'echo "system $*"')
        self.assertEqual("system export F.h5 --to-torch F.pt\n", self.bare(system=system).stdout)

    def test_name_a_python_that_cannot_be_started(self):
        done = self.bare(TUTTI_PYTHON="/nonexistent")
        self.assertEqual((1, "TUTTI_PYTHON=/nonexistent: it cannot be started: No such file or directory; give the "
                          "path of another Python, or unset TUTTI_PYTHON\n"), (done.returncode, done.stderr))

    def test_do_not_name_what_an_installation_lacks(self):
        done = subprocess.run([sys.executable, TOOLS / "export", "--help"], capture_output=True, text=True, check=True)
        self.assertNotIn("tools/setup", done.stdout)


class StateDicts(unittest.TestCase):
    """What can be said of them without PyTorch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "F.pth"

    def archive(self, **contents):
        """A file like those of torch.save."""
        with zipfile.ZipFile(self.file, "w") as archive:
            for name, content in contents.items():
                archive.writestr(f"F/{name.replace('_', '.')}", content)

    def test_are_told_from_other_files_before_pytorch_reads_them(self):
        self.archive(data_pkl=b"")
        cut = self.file.read_bytes()[:-30]
        other = io.BytesIO()
        with tarfile.open(fileobj=other, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
            archive.addfile(tarfile.TarInfo("\x80evil"))
        for content, fault in ((b"", "it is empty: copy or download it again"),
                               (b"<!DOCTYPE html><html>", r"it is no .*: it begins with b'<!DOCTYPE html><'"),
                               (cut, "it is cut short or damaged"),
                               (other.getvalue(), "it is no file of torch.save")):
            self.file.write_bytes(content)
            with self.subTest(fault), self.assertRaisesRegex(ExportError, f"F.pth: {fault}"):
                state_dicts.load(self.file)
        self.archive(constants_pkl=b"", data_pkl=b"")
        with self.assertRaisesRegex(ExportError, "F.pth: it holds a network of TorchScript"):
            state_dicts.load(self.file)
        with self.assertRaisesRegex(ExportError, "G.pth: No such file or directory"):
            state_dicts.load(self.file.with_name("G.pth"))

    def test_name_the_code_in_a_file_and_not_pytorchs_advice_to_run_it(self):
        advice = pickle.UnpicklingError("Re-running `torch.load` with `weights_only` set to `False` will likely work")
        options = argparse.Namespace(epoch=3)
        network = b"\x80\x02ctorch.nn.modules.conv\nConv2d\nq\x00."
        for content, fault in ((pickle.dumps(options, 2), r"more than tensors \(argparse.Namespace"),
                               (pickle.dumps(options, 4), r"more than tensors \(argparse.Namespace"),
                               (network, "a whole network .* save network.state_dict\\(\\) instead"),
                               (pickle.dumps({"a": 1}), "it is damaged or cut short"), (b"x", "it is damaged")):
            self.archive(data_pkl=content)
            in_archive = state_dicts.reason(self.file, advice)
            self.assertRegex(in_archive, fault)
            self.assertNotIn("weights_only", in_archive)
            if content.startswith(b"\x80"):  # after the three short pickles of the old format
                self.file.write_bytes(pickle.dumps(1, 2) + pickle.dumps(2, 2) + pickle.dumps({}, 2) + content)
                self.assertEqual(in_archive, state_dicts.reason(self.file, advice))

    def test_are_taken_out_of_training_checkpoints_and_wrappers(self):
        known, value = {"conv1.weight", "fc.bias"}, np.zeros(1)
        for state, changes in (({"conv1.weight": value}, []),
                               ({"epoch": 3, "model": {"conv1.weight": value}, "optimizer": {"state": {}}},
                                ['a training checkpoint, whose "model" is taken']),
                               ({"model_state_dict": {"_orig_mod.module.conv1.weight": value}},
                                ['a training checkpoint, whose "model_state_dict" is taken',
                                 'names without their "_orig_mod."', 'names without their "module."']),
                               ({"n_averaged": value, "module.conv1.weight": value},
                                ['names without their "module."'])):
            self.assertEqual(({"conv1.weight": value}, changes), state_dicts.plain(state, known))
        ours = {"module.weight": value}  # a layer of a run can be called so
        self.assertEqual((ours, []), state_dicts.plain(ours, {"module.weight"}))
        endless: dict = {}
        endless["model"] = endless
        self.assertEqual(endless, state_dicts.plain(endless, known)[0])

    def test_of_unknown_networks_are_described(self):
        self.assertEqual("it looks like a state dict of another network, with 2 tensors: b, a, ..",
                         state_dicts.looks({"b": np.zeros(1), "a": np.zeros(1), "step": 3}))
        self.assertEqual("it holds no tensors, only epoch, optimizer", state_dicts.looks({"epoch": 3, "optimizer": {}}))
        self.assertEqual("it holds no tensors", state_dicts.looks({}))


class Data(Trained):
    def test_is_written_as_trainer_reads_it(self):
        images = np.random.default_rng(3).integers(256, size=(7, 3, 5, 4), dtype=np.uint8)
        file = self.root / "data.h5"
        data_file.write_images(file, images, 3)
        self.assertIn("7 images of 3x5x4", trainer("data", "info", file))
        self.assertEqual(images[:4].tolist(), data_file.read_images(file, 4).tolist())


class Digest(unittest.TestCase):
    def test_of_a_long_array_is_computed_in_pieces(self):
        values = np.arange(digests.PIECE + 3, dtype=np.float32)
        whole = digests.digest("w", values)
        with mock.patch.object(digests, "PIECE", 1000):
            self.assertEqual(whole, digests.digest("w", values))


if __name__ == "__main__":
    unittest.main()
