"""Evaluates trained networks of all kinds in onnxruntime and PyTorch, and compares the outputs with trainer's."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TRAINER = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else \
    TOOLS.parent / "trainer"
sys.dont_write_bytecode = True
sys.path += [str(TOOLS), str(TOOLS / "peers")]

import numpy as np
import onnx
import torch

from exporting import checkpoint as checkpoints
from exporting import verification
from exporting.checkpoint import Checkpoint
from exporting.functions import FUNCTIONS
from reference_nets import make_network

SHAPES = {"resnet50": (3, 64, 64), "mobilenet_v2": (3, 64, 64), "vgg11": (3, 32, 32), "odd": (3, 21, 18)}
MODELS = ("lenet", "lenet-avg", "mlp", "linear", "resnet18", "resnet34", "resnet50", "vgg11", "odd")
LARGE = ("resnet34", "resnet50", "vgg11")
CLASSES = 10
# Everything that the built-in networks have not: types, names, sources and options of layers.
ODD = """
name = "odd \\"one\\""
[[layer]]
name = "in-proj.conv"
type = "conv2d"
channels = 6
kernel = 4
stride = 2
padding = 2
bias = false
[[layer]]
name = "in-proj.norm"
type = "batch-norm"
epsilon = 0.01
momentum = 0.5
[[layer]]
name = "in-proj.groups"
type = "conv2d"
channels = 6
kernel = 3
padding = 2
groups = 3
dilation = 2
init = "dirac"
frozen = ["bias"]
[[layer]]
name = "pool"
type = "max-pool2d"
kernel = 3
stride = 1
padding = 1
[[layer]]
name = "mean"
type = "average-pool2d"
kernel = 3
stride = 1
padding = 1
[[layer]]
name = "x"
type = "add"
residual = "in-proj.norm"
relu = true
[[layer]]
name = "lambda.1"
type = "conv2d"
input = "image"
channels = 6
kernel = 2
stride = 2
padding = 1
relu = true
[[layer]]
name = "lambda.pool"
type = "average-pool2d"
kernel = 1
[[layer]]
name = "lambda.norm"
type = "batch-norm"
input = "x"
residual = "lambda.pool"
add = true
relu = true
""" + "".join(f'''[[layer]]
name = "{name}"
type = "{name}"
{"factor = 3" if function.takes_factor() else ""}
''' for name, function in FUNCTIONS.items()) + """
[[layer]]
name = "drop1"
type = "dropout"
rate = 0.25
[[layer]]
name = "fold"
type = "linear"
units = 16
bias = false
relu = true
[[layer]]
name = "relu"
type = "linear"
units = 16
relu = true
[[layer]]
name = "sum"
type = "add"
residual = "fold"
[[layer]]
name = "logits"
type = "linear"
units = "classes"
[[layer]]
name = "drop2"
type = "dropout"
rate = 0.5
"""


def run(program, *words, status=0):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode != status:
        raise AssertionError(f"{program} {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


class Exports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        (cls.root / "odd.toml").write_text(ODD, encoding="utf-8")

    def trained(self, name, *more):
        """The run folder of a few steps, after which batch norm's statistics are not as they start."""
        folder = self.root / "-".join([name, *(word.strip("-") for word in more if word.startswith("-"))])
        files = {"odd": self.root / "odd.toml", "mobilenet_v2": TOOLS.parent / "jobs/models/mobilenet_v2.toml"}
        if not folder.exists():
            shape = SHAPES.get(name, (1, 28, 28))
            run(TRAINER, "--data", f"synthetic:64x{'x'.join(map(str, shape))}:{CLASSES}", "--steps", 3, "--lr", 0.01,
                "--batch-size", 16, "--test-every", 0, "--threads", 1, "--out", folder,
                "--model", files.get(name, name), *more)
        return folder

    def export(self, *words, status=0):
        return run(sys.executable, TOOLS / "export", *words, "--trainer", TRAINER, status=status)

    def module(self, path):
        spec = importlib.util.spec_from_file_location("written", path)
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        return written.Network()


class Networks(Exports):
    def check(self, name):
        run_folder, images = self.trained(name), 20 if name in LARGE else 100
        shape = "x".join(map(str, SHAPES.get(name, (1, 28, 28))))
        onnx_path, state, module = (self.root / f"{name}{ending}" for ending in (".onnx", ".pt", ".py"))
        output = self.export(run_folder, "--to-onnx", onnx_path, "--to-torch", state, "--module", module,
                           "--image", shape, "--verify", images)
        self.assertEqual(2, output.count(f": {images} of {images} have the same label"), output)
        onnx.checker.check_model(str(onnx_path), full_check=True)
        self.assertTrue(all(len(line) <= 120 for line in module.read_text(encoding="utf-8").splitlines()))
        self.module(module).load_state_dict(torch.load(state))
        self.check_back(run_folder, onnx_path, state)

    def check_back(self, run_folder, onnx_path, state):
        of_onnx, of_state = self.root / "of-onnx.h5", self.root / "of-state.h5"
        self.export(onnx_path, "--to-checkpoint", of_onnx)
        self.export(state, "--to-checkpoint", of_state, "--like", run_folder)
        before = checkpoints.read(run_folder)
        for path in (of_onnx, of_state):
            after = checkpoints.read(path)
            for _, _, place in before.model.arrays():
                self.assertEqual(before.array(place).tobytes(), after.array(place).tobytes(), f"{path}: {place}")


for name in MODELS:
    setattr(Networks, f"test_{name.replace('-', '_')}_is_the_same_elsewhere_and_back",
            lambda self, name=name: self.check(name))


class Torch(Exports):
    def test_plain_networks_take_the_state_dict(self):
        for name in ("lenet", "resnet18", "resnet50", "mobilenet_v2"):
            with self.subTest(name):
                shape = SHAPES.get(name, (1, 28, 28))
                state, module = self.root / "F.pt", self.root / "F.py"
                self.export(self.trained(name), "--to-torch", state, "--module", module)
                plain, written = make_network(name, shape, CLASSES), self.module(module)
                images = torch.rand(4, *shape)
                for network in (plain, written):
                    network.load_state_dict(torch.load(state))
                    network.eval()
                with torch.no_grad():
                    self.assertTrue(torch.equal(plain(images), written(images)))

    def test_what_was_trained_on_comes_back(self):
        """With another head, and as a run's beginning."""
        state, back, like = self.root / "G.pt", self.root / "G.h5", self.trained("lenet")
        network = make_network("lenet", (1, 28, 28), 7)
        torch.save(network.state_dict(), state)
        self.export(state, "--to-checkpoint", back, "--like", like)
        output = run(TRAINER, "eval", "--checkpoint", back, "--data", "synthetic:32x1x28x28:7", "--on", "train")
        self.assertIn("32 images", output)
        output = run(TRAINER, "--init-from", back, "--data", "synthetic:32x1x28x28:7", "--steps", 1, "--test-every", 0)
        self.assertIn("initialized from", output)

    def test_state_dicts_of_other_networks_are_refused_by_tensor(self):
        state, like = self.root / "H.pt", self.trained("lenet")
        good = make_network("lenet", (1, 28, 28), CLASSES).state_dict()
        wide = torch.zeros(50, 20, 3, 3)
        for changed, fault in (({**good, "conv2.weight": wide}, r"conv2.weight is \(50, 20, 3, 3\), but \(50, 20, 5"),
                               ({**good, "extra": wide}, "extra is in no layer"),
                               ({k: v for k, v in good.items() if k != "dense1.bias"}, "it has no tensor dense1.bias"),
                               ({k: v.double() for k, v in good.items()}, "of the type torch.float64: save it as fp32"),
                               ([1, 2], "holds a list, not a state dict")):
            torch.save(changed, state)
            output = self.export(state, "--to-checkpoint", self.root / "H.h5", "--like", like, status=1)
            self.assertRegex(output, fault)
        state.write_bytes(b"nothing of the kind")
        output = self.export(state, "--to-checkpoint", self.root / "H.h5", "--like", like, status=1)
        self.assertIn("H.pt: it is no file of torch.save: it begins with b'nothing of the k'", output)
        self.assertFalse((self.root / "H.h5").exists())

    def test_layers_may_have_the_names_of_wrappers(self):
        """The names in a state dict are those of its run, even if they begin as wrappers' do."""
        model, state, back = (self.root / name for name in ("wrapped.toml", "W.pt", "W.h5"))
        model.write_text('name = "w"\n[[layer]]\nname = "module.head"\ntype = "linear"\nunits = "classes"\n',
                         encoding="utf-8")
        run_folder = self.root / "wrapped"
        run(TRAINER, "--model", model, "--data", "synthetic:32x1x4x4:3", "--steps", 1, "--test-every", 0, "--out",
            run_folder)
        self.export(run_folder, "--to-torch", state)
        self.assertNotIn("without", self.export(state, "--to-checkpoint", back, "--like", run_folder))
        compiled = {f"_orig_mod.{key}": value for key, value in torch.load(state).items()}
        torch.save({"epoch": 1, "model": compiled}, state)
        output = self.export(state, "--to-checkpoint", back, "--like", run_folder, "--verify", 20)
        self.assertIn('W.pt: a training checkpoint, whose "model" is taken; names without their "_orig_mod."', output)

    def test_layers_that_no_module_can_hold_are_refused_by_name(self):
        model = self.root / "train.toml"
        model.write_text('name = "t"\n[[layer]]\nname = "train"\ntype = "linear"\nunits = "classes"\n',
                         encoding="utf-8")
        run_folder = self.root / "train"
        run(TRAINER, "--model", model, "--data", "synthetic:32x1x4x4:3", "--steps", 1, "--test-every", 0, "--out",
            run_folder)
        output = self.export(run_folder, "--to-torch", self.root / "T.pt", "--module", self.root / "T.py", status=1)
        self.assertIn("no module can be called 'train'", output)


class Normalised(Exports):
    def test_images_may_come_raw_or_normalised(self):
        run_folder = self.trained("odd", "--normalize", "0.5,0.4,0.3/0.25,0.2,0.5")
        files = {}
        for words in ((), ("--with-normalize",)):
            files[words] = self.root / f"n{len(words)}.onnx"
            output = self.export(run_folder, "--to-onnx", files[words], "--to-torch", self.root / "n.pt", "--module",
                               self.root / "n.py", *words, "--image", "3x21x18", "--verify", 50)
            self.assertEqual(2, output.count("50 of 50 have the same label"), output)
        raw, normalised = (verification.OnnxNetwork(file) for file in (files[("--with-normalize",)], files[()]))
        images = np.random.default_rng(1).random((5, 3, 21, 18), np.float32)
        mean, deviation = (np.array(values, np.float32).reshape(3, 1, 1)
                           for values in ((0.5, 0.4, 0.3), (0.25, 0.2, 0.5)))
        centred = (images - mean) / deviation
        np.testing.assert_allclose(raw.logits(images), normalised.logits(centred), rtol=0, atol=1e-6)


class Verification(Exports):
    def test_finds_one_weight_that_differs(self):
        run_folder, changed = self.trained("lenet"), self.root / "changed.onnx"
        self.export(run_folder, "--to-onnx", changed)
        message = onnx.load(changed)
        weight = next(array for array in message.graph.initializer if array.name == "dense2/bias")
        values = np.frombuffer(weight.raw_data, np.float32).copy()
        values[3] += 0.01
        weight.raw_data = values.tobytes()
        network = verification.OnnxNetwork(changed)
        network.session = verification.OnnxNetwork(self.saved(message)).session
        checkpoint = checkpoints.read(run_folder)
        request = verification.Request(data="50", image=(1, 28, 28), trainer=TRAINER)
        self.assertFalse(verification.verify(checkpoint, [network], request))

    def saved(self, message):
        path = self.root / "saved.onnx"
        onnx.save(message, path)
        return path

    def test_plays_the_images_of_a_data_set(self):
        output = self.export(self.trained("lenet"), "--to-onnx", self.root / "d.onnx", "--verify",
                           "synthetic:300x1x28x28:10")  # a tenth of them, its test set
        self.assertIn("verified in fp32 with 30 images of 1x28x28", output)

    def test_holds_networks_of_bf16_to_their_fp32(self):
        checkpoint: Checkpoint = checkpoints.read(self.trained("lenet"))
        text = checkpoint.text("/run/configuration")
        self.assertIn('precision = "fp32"', text)
        checkpoint.values["/run/configuration"] = text.replace('precision = "fp32"', 'precision = "bf16"')
        checkpoint.path = self.root / "bf16.h5"
        checkpoints.write(checkpoint)
        output = self.export(checkpoint.path, "--to-onnx", self.root / "b.onnx", "--verify", 50)
        self.assertIn("50 of 50 have the same label", output)


if __name__ == "__main__":
    unittest.main()
