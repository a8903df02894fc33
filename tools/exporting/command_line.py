"""Converts a trained network to ONNX and PyTorch, and back.

  tools/export runs/a --to-onnx a.onnx                      the run's newest checkpoint, for many runtimes
  tools/export runs/a --to-torch a.pt --module a.py         as a PyTorch state dict, and the module that loads it
  tools/export runs/a --to-onnx a.onnx --verify ~/data      and compares both on 1,000 images

  tools/export a.onnx --to-checkpoint back.h5               of a file that tools/export wrote
  tools/export a.pt --to-checkpoint back.h5 --like runs/a   of a state dict, for the network of that run
  tools/export a.pt --to-checkpoint a.h5 --names torchvision  of a state dict of torchvision's

Conversions do not change a bit of weights and statistics. A conversion back gives a checkpoint without optimizer state,
for `trainer --init-from`, eval, predict, inspect and diff. The networks are in evaluation mode: dropout does nothing,
batch norm uses its running statistics. Needs Python 3.11 with numpy and h5py (apt install python3-h5py); torch for
state dicts (python3-torch, and python3-torchvision to verify them); onnxruntime to verify ONNX. If this Python lacks
them, the one in $TUTTI_PYTHON or /usr/bin/python3 is used.
"""

import argparse
import pathlib
import shutil
import sys

from exporting.errors import ExportError
from peers import peer_python

PLACES = pathlib.Path(__file__).resolve().parents
# The installed trainer is in the folder of the tools; in a checkout, it is above them.
TRAINER = next((place for place in (PLACES[1] / "trainer", PLACES[2] / "trainer") if place.exists()),
               PLACES[2] / "trainer")
PROGRAM = "tutti-export" if pathlib.Path(sys.argv[0]).name == "tutti-export" else "tools/export"
TORCH_ENDINGS = (".pt", ".pth", ".safetensors")


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=(__doc__ or "").replace("tools/export", PROGRAM),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("source", type=path, help="checkpoint (.h5), a run's folder (its newest good one), "
                        "RUN@best, RUN@STEP, .onnx, .pt, .pth or .safetensors")
    parser.add_argument("--weights", choices=("ema", "last"), help="those of the last step or their average (--ema of "
                        "the run); default: the average if there is one")
    parser.add_argument("--to-onnx", type=path, metavar="F.onnx", help="write it as an ONNX file")
    parser.add_argument("--to-torch", type=path, metavar="F.pt", help="write its tensors as a PyTorch state dict")
    parser.add_argument("--module", type=path, metavar="F.py", help="with --to-torch: also write the network's source")
    parser.add_argument("--to-checkpoint", type=path, metavar="F.h5", help="make a checkpoint of an ONNX file that was "
                        "written here, or of a state dict")
    parser.add_argument("--like", type=path, metavar="RUN", help="of a state dict: the run or checkpoint whose "
                        "network and options it has")
    parser.add_argument("--names", choices=("torchvision",), help="names of the tensors in the state dict: those of "
                        "torchvision's resnet18, resnet34, resnet50, vgg11 or mobilenet_v2; default: ours")
    parser.add_argument("--classes", type=class_names, metavar="A,B,..|FILE", help="of a state dict, which has "
                        "none: the names of the classes, in its order, or a text file with one on each line")
    parser.add_argument("--with-normalize", action="store_true", help="let the network take pixel / 255 and normalise "
                        "it as the run did (--normalize); without, images come normalised")
    parser.add_argument("--image", type=image, metavar="CxHxW", help="what it takes, where the weights leave more than "
                        "one size possible; without, any that fits")
    parser.add_argument("--verify", metavar="DATA|N", help="1,000 images of DATA, or N drawn at random, must get the "
                        "same labels here and there, and probabilities within 1e-5")
    parser.add_argument("--trainer", type=program, default=TRAINER, help="for --verify; default: %(default)s")
    options = parser.parse_args(words)
    refuse_contradictions(parser, options)
    return options


def image(word: str) -> tuple[int, int, int]:
    channels, height, width = (int(extent) for extent in word.split("x"))
    if min(channels, height, width) < 1:
        raise ValueError(word)
    return channels, height, width


def class_names(word: str) -> list[str]:
    file = pathlib.Path(word)
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else word.split(",")


def program(word: str) -> pathlib.Path:
    """Returns the absolute path, since pathlib drops a leading "./", and PATH would be searched without it."""
    found = shutil.which(word)
    return pathlib.Path(found or word).absolute()


def refuse_contradictions(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    goes_back = options.source.suffix in (".onnx", *TORCH_ENDINGS)
    if goes_back and (options.to_onnx or options.to_torch):
        parser.error(f"{options.source.name} becomes a checkpoint first: --to-checkpoint F.h5, and go on from that")
    if not goes_back and options.to_checkpoint:
        parser.error("--to-checkpoint needs an .onnx, .pt, .pth or .safetensors file")
    if not (options.to_onnx or options.to_torch or options.to_checkpoint):
        parser.error("choose the output: " + ("--to-checkpoint F.h5" if goes_back else "--to-onnx or --to-torch"))
    if options.module and not options.to_torch:
        parser.error("--module goes with --to-torch")
    is_state = options.source.suffix in TORCH_ENDINGS
    if options.like and not is_state or is_state and not (options.like or options.names):
        parser.error("--like RUN goes with a state dict, which holds no network: give a run or checkpoint that has it, "
                     "or --names torchvision")
    if options.classes and not is_state:
        parser.error("--classes goes with a state dict; all other files have the names of their classes")
    if options.names and (options.module or not (options.to_torch or is_state)):
        parser.error("--names torchvision is for state dicts (--to-torch, --to-checkpoint), without --module")
    if options.with_normalize and options.to_torch and not options.module:
        parser.error("--with-normalize goes with --to-onnx or --module; a state dict alone normalises nothing")


def packages_for(options: argparse.Namespace) -> list[str]:
    uses_torch = options.to_torch or options.source.suffix in TORCH_ENDINGS
    uses_onnx = options.to_onnx or options.source.suffix == ".onnx"
    return ["numpy", "h5py", *(["torch"] if uses_torch else []),
            *(["safetensors"] if options.source.suffix == ".safetensors" else []),
            *(["torchvision"] if options.names and options.verify else []),
            *(["onnxruntime"] if uses_onnx and options.verify else [])]


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    peer_python.go_on_with(*packages_for(options))
    try:
        return 0 if carry_out(options) else 1
    except ExportError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def carry_out(options: argparse.Namespace) -> bool:
    from exporting import conversions

    return conversions.carry_out(options)
