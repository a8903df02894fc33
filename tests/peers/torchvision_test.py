"""Converts state dicts of torchvision's networks to checkpoints and back, and compares the outputs."""

import argparse
import contextlib
import io
import os
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
        self.assertEqual(name, torchvision_names.original_of(read.model.name))
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
        self.assertEqual([*network.state_dict()], [*again])
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
                               ({"ema": good}, "F.pth: it holds no tensors, only ema; it is none of those that --names "
                                "torchvision reads: resnet18, resnet34, resnet50, vgg11, mobilenet_v2\n"),
                               ({"blocks.0.norm.weight": good["fc.bias"], "fc.weight": good["fc.weight"]},
                                "F.pth: it looks like a state dict of another network, with 2 tensors: "
                                "blocks.0.norm.weight, fc.weight, ..; it is none of those"),
                               ({**good, "layer1.0.bn1.bias": good["fc.bias"]},
                                "layer1.0.bn1.bias is (1000,), but (64,) in resnet18-imagenet.toml")):
            torch.save(changed, state)
            self.assertIn(fault, self.refusal(state, "--names", "torchvision", "--to-checkpoint", self.root / "F.h5"))
        torch.save(dict.fromkeys(torchvision_names.expected_keys()["vgg11"], torch.zeros(1)), state)
        self.assertIn("--image 3x8x8 does not fit the network vgg11",
                      self.refusal(state, "--names", "torchvision", "--image", "3x8x8", "--to-checkpoint",
                                   self.root / "F.h5"))

    def converted(self, content, is_zip=True):
        """What is printed, and the weights."""
        torch.save(content, self.root / "F.pth", _use_new_zipfile_serialization=is_zip)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(0, command_line.main([str(self.root / "F.pth"), "--names", "torchvision",
                                                   "--to-checkpoint", str(self.root / "F.h5")]))
        return out.getvalue(), checkpoints.weights_digest(checkpoints.read(self.root / "F.h5"))

    def test_classes_can_be_named(self):
        names, file = [f"class {number}" for number in range(CLASSES)], self.root / "names.txt"
        file.write_text("\n".join(names) + "\n", encoding="utf-8")
        self.converted(get_model("resnet18", num_classes=CLASSES).state_dict())
        self.assertEqual([], checkpoints.read(self.root / "F.h5").trained_on()["class_names"])
        for words in (",".join(names), file):
            self.export(self.root / "F.pth", "--names", "torchvision", "--classes", words, "--to-checkpoint",
                        self.root / "F.h5")
            self.assertEqual(names, checkpoints.read(self.root / "F.h5").trained_on()["class_names"])
        self.assertIn("--classes has 2 different names, and the network 12 classes",
                      self.refusal(self.root / "F.pth", "--names", "torchvision", "--classes", "a,b",
                                   "--to-checkpoint", self.root / "G.h5"))

    def test_training_checkpoints_and_wrapped_names_are_taken(self):
        network = get_model("resnet18", num_classes=CLASSES)
        state, optimizer = network.state_dict(), torch.optim.SGD(network.parameters(), 0.1).state_dict()
        _, expected = self.converted(state)
        wrapped = torch.nn.DataParallel(network).state_dict()  # names as those of DDP
        averaged = torch.optim.swa_utils.AveragedModel(network).state_dict()
        compiled = {f"_orig_mod.{key}": value for key, value in state.items()}
        for content, line in (({"epoch": 3, "state_dict": wrapped, "optimizer": optimizer},
                               'a training checkpoint, whose "state_dict" is taken; names without their "module."'),
                              ({"model": compiled, "optimizer": optimizer},
                               'a training checkpoint, whose "model" is taken; names without their "_orig_mod."'),
                              ({"model_state_dict": state, "loss": 0.5},
                               'a training checkpoint, whose "model_state_dict" is taken'),
                              (averaged, 'names without their "module."')):
            for is_zip in (True, False):
                out, digest = self.converted(content, is_zip)
                self.assertEqual((expected, f"{self.root}/F.pth: {line}"), (digest, out.splitlines()[0]))

    def test_code_in_files_is_refused_and_never_run(self):
        ran = self.root / "ran"

        class Code:
            def __reduce__(self):
                return os.system, (f"touch {ran}",)

        network = get_model("resnet18")
        for content, fault in ((network, r"a whole network \(torchvision.models.resnet.ResNet, .*network.state_dict"),
                               ({"state_dict": network.state_dict(), "args": argparse.Namespace(lr=0.1)},
                                r"it holds more than tensors \(argparse.Namespace\)"),
                               ({"lr": 0.1, **network.state_dict(), "x": Code()},
                                r"it holds more than tensors \(\w+.system\)")):
            for is_zip in (True, False):
                torch.save(content, self.root / "F.pth", _use_new_zipfile_serialization=is_zip)
                said = self.refusal(self.root / "F.pth", "--names", "torchvision", "--to-checkpoint",
                                    self.root / "F.h5")
                self.assertRegex(said, fault)
                self.assertNotIn("weights_only", said)
                self.assertEqual(1, len(said.splitlines()))
        self.assertFalse(ran.exists())

    def test_damaged_files_are_refused_in_one_line(self):
        for name, is_zip in (("F.pth", True), ("F.pth", False), ("F.safetensors", None)):
            path = self.root / name
            state = get_model("resnet18").state_dict()
            if is_zip is None:
                save_file(state, path)
            else:
                torch.save(state, path, _use_new_zipfile_serialization=is_zip)
            whole = path.read_bytes()
            for content, fault in ((whole[:len(whole) // 2], "cut short"), (whole[:20], "cut short"),
                                   (b"", "is empty")):
                path.write_bytes(content)
                said = self.refusal(path, "--names", "torchvision", "--to-checkpoint", self.root / "F.h5")
                self.assertRegex(said, f"^[^ ]+: {path}: .*{fault}")
                self.assertEqual(1, len(said.splitlines()), said)

    def test_networks_that_torchvision_does_not_have_are_refused_by_name(self):
        verification.run([TRAINER, "--data", "synthetic:8x1x28x28:4", "--steps", 1, "--test-every", 0, "--out",
                          self.root / "run"])
        self.assertIn("torchvision has no network like lenet",
                      self.refusal(self.root / "run", "--names", "torchvision", "--to-torch", self.root / "F.pt"))


if __name__ == "__main__":
    unittest.main()
