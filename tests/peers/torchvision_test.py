"""Converts state dicts of torchvision's networks to checkpoints and back, and compares the outputs."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TRAINER = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else \
    TOOLS.parent / "trainer"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))

import numpy as np
import torch
from safetensors.torch import save_file
from torchvision.models import get_model

from exporting import checkpoint as checkpoints
from exporting import command_line, torchvision_names, verification

CLASSES, IMAGES = 12, 4
LIMIT = 1e-4  # of the largest logit


def centered(logits):
    """Softmax outputs determine logits up to a constant."""
    return logits - logits.mean(1, keepdims=True)


class Torchvision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def network(self, name, side):
        """Random weights, with the statistics of random images."""
        torch.manual_seed(5)
        network = get_model(name, num_classes=CLASSES)
        for layer in network.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
                torch.nn.init.normal_(layer.bias, 0, 0.3)
                layer.momentum = None  # the mean of all batches
        if name != "vgg11":
            with torch.no_grad():
                network.train()(torch.randn(8, 3, side, side))
        return network.eval()

    def export(self, *words):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(0, command_line.main([str(word) for word in words]), words)

    def check(self, name, side=64):
        network = self.network(name, side)
        state, checkpoint, back = (self.root / f"F.{ending}" for ending in ("safetensors", "h5", "pt"))
        save_file(network.state_dict(), state)
        self.export(state, "--names", "torchvision", "--image", f"3x{side}x{side}", "--to-checkpoint", checkpoint)
        read = checkpoints.read(checkpoint)
        self.assertEqual(name, torchvision_names.original_of(read.model))
        images = np.random.default_rng(2).integers(256, size=(IMAGES, 3, side, side), dtype=np.uint8)
        ours = np.log(verification.trainer_probabilities(read, images, TRAINER, self.root))
        mean, deviation = (values.reshape(3, 1, 1) for values in read.statistics(3))
        with torch.no_grad():
            theirs = network(torch.from_numpy((images / 255 - mean) / deviation).float()).numpy()
        apart = np.abs(centered(ours) - centered(theirs)).max() / np.abs(theirs).max()
        print(f"{name}: logits differ by {apart:.1e} of the largest", flush=True)
        self.assertLess(apart, LIMIT)
        self.export(checkpoint, "--names", "torchvision", "--to-torch", back)
        again = torch.load(back)
        self.assertEqual(network.state_dict().keys(), again.keys())
        for key, value in network.state_dict().items():
            self.assertTrue(key.endswith("num_batches_tracked") or torch.equal(value, again[key]), key)

    def test_resnet18_has_the_same_logits(self):
        self.check("resnet18")

    def test_resnet34_has_the_same_logits(self):
        self.check("resnet34")

    def test_resnet50_has_the_same_logits(self):
        self.check("resnet50")

    def test_mobilenet_v2_has_the_same_logits(self):
        self.check("mobilenet_v2")

    def test_vgg11_has_the_same_logits(self):
        self.check("vgg11", 224)

    def refusal(self, *words):
        with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(1, command_line.main([str(word) for word in words]))
        return err.getvalue()

    def test_names_and_shapes_of_other_networks_are_refused_by_tensor(self):
        state, good = self.root / "F.pth", get_model("resnet18").state_dict()
        for changed, fault in (({**good, "layer1.2.conv1.weight": good["fc.bias"]},
                                "F.pth: it has a tensor layer1.2.conv1.weight, unlike torchvision's resnet18, the most "
                                "similar network of those that --names torchvision reads: resnet18, resnet34, "
                                "resnet50, vgg11, mobilenet_v2\n"),
                               ({key: value for key, value in good.items() if key != "layer2.0.downsample.0.weight"},
                                "it has no tensor layer2.0.downsample.0.weight, unlike torchvision's resnet18"),
                               ({"state_dict": good}, "it has no tensor classifier.0.bias, unlike torchvision's vgg11"),
                               ({**good, "layer1.0.bn1.bias": good["fc.bias"]},
                                "layer1.0.bn1.bias is (1000,), but (64,) in resnet18-imagenet.toml")):
            torch.save(changed, state)
            self.assertIn(fault, self.refusal(state, "--names", "torchvision", "--to-checkpoint", self.root / "F.h5"))
        with torch.device("meta"):
            names = get_model("vgg11").state_dict()
        torch.save(dict.fromkeys(names, torch.zeros(1)), state)
        self.assertIn("--image 3x8x8 does not fit the network vgg11",
                      self.refusal(state, "--names", "torchvision", "--image", "3x8x8", "--to-checkpoint",
                                   self.root / "F.h5"))

    def test_networks_that_torchvision_does_not_have_are_refused_by_name(self):
        verification.run([TRAINER, "--data", "synthetic:8x1x28x28:4", "--steps", 1, "--test-every", 0, "--out",
                          self.root / "run"])
        self.assertIn("torchvision has no network like lenet",
                      self.refusal(self.root / "run", "--names", "torchvision", "--to-torch", self.root / "F.pt"))


if __name__ == "__main__":
    unittest.main()
