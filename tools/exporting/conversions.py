"""The steps of the command line: reads, writes, reports and verifies networks."""

import argparse

from exporting import checkpoint as checkpoints
from exporting import model as nets
from exporting import onnx_file
from exporting.checkpoint import Checkpoint
from exporting.errors import ExportError
from exporting.model import Extents, Image
from exporting.whole_file import write_atomically

USUAL_SIDE = 32  # of small images


def carry_out(options: argparse.Namespace) -> bool:
    """Returns False if a verification found a difference."""
    checkpoint = bring_back(options) if options.to_checkpoint else checkpoints.read(options.source)
    averaged = bool(checkpoint.averages()) and options.weights != "last"
    checkpoint.choose_weights(options.weights)
    kind = "average" if averaged else "weights"
    print(f"{checkpoint.path}: {checkpoint.model.name} after {checkpoint.step} steps, {kind} "
          f"{checkpoints.weights_digest(checkpoint)}{', no optimizer state' if options.to_checkpoint else ''}",
          flush=True)
    image = image_of(checkpoint, options.image)
    normalizes = options.with_normalize and checkpoint.statistics(image[0]) is not None
    if options.to_onnx:
        onnx_file.write(checkpoint, options.to_onnx, image, normalizes)
        print(f"{options.to_onnx}: ONNX, opset {onnx_file.OPSET}, image (batch x {' x '.join(map(str, image))}; "
              f"{meaning(checkpoint, normalizes)}) -> logits", flush=True)
        print(f"{options.to_onnx}.json: how images are resized, cut and normalised for it, and its classes; "
              "tools/exporting/onnx_client.py goes by it", flush=True)
    if options.to_torch:
        write_torch(checkpoint, image, normalizes, options)
    return not options.verify or verify(checkpoint, image, normalizes, options)


def bring_back(options: argparse.Namespace) -> Checkpoint:
    if options.source.suffix == ".onnx":
        checkpoint = onnx_file.read(options.source, options.to_checkpoint)
    else:
        checkpoint = of_state_dict(options)
    checkpoints.write(checkpoint)
    return checkpoint


def of_state_dict(options: argparse.Namespace) -> Checkpoint:
    from exporting import state_dicts, torch_file, torchvision_names

    path, state = options.source, state_dicts.load(options.source)
    if options.like:
        like = checkpoints.read(options.like)
        rename = torchvision_names.names_of(like.model) if options.names else str
        tensors, changes = state_dicts.plain(state, torch_file.keys_of(like.model, rename))
    else:
        tensors, changes = state_dicts.plain(state, set().union(*torchvision_names.expected_keys().values()))
        like = torchvision_names.untrained(path, tensors, options.image or torchvision_names.IMAGE)
        rename = torchvision_names.names_of(like.model)
    if changes:
        print(f"{path}: {'; '.join(changes)}", flush=True)
    checkpoint = torch_file.read(torch_file.StateDict(path, tensors, rename), like, options.to_checkpoint)
    return torch_file.with_class_names(checkpoint, options.classes) if options.classes else checkpoint


def write_torch(checkpoint: Checkpoint, image: Extents, normalizes: bool, options: argparse.Namespace) -> None:
    from exporting import torch_file, torch_module, torchvision_names

    rename = torchvision_names.names_of(checkpoint.model) if options.names else str
    torch_file.write(checkpoint, options.to_torch, rename, torchvision_names.in_order if options.names else list)
    print(f"{options.to_torch}: PyTorch state dict, for images of {meaning(checkpoint, False)}", flush=True)
    if options.module:
        source = torch_module.source_of(checkpoint, image, options.to_torch.name, normalizes)
        write_atomically(options.module, lambda unfinished: unfinished.write_text(source, encoding="utf-8"))
        print(f"{options.module}: class Network, for images of {meaning(checkpoint, normalizes)}", flush=True)


def meaning(checkpoint: Checkpoint, normalizes: bool) -> str:
    """Describes the values of an image."""
    normalize = checkpoint.option("normalize") or "none"
    return "pixel / 255" if normalizes or normalize == "none" else f"(pixel / 255 - M) / S, M/S = {normalize}"


def image_of(checkpoint: Checkpoint, requested: Image | None) -> Extents:
    """The input of the network: the requested one, or that of the checkpoint. A name stands for an open extent."""
    shapes = checkpoint.shapes()
    if requested:
        if not nets.fits(checkpoint.model, shapes, requested):
            raise ExportError(f"--image {'x'.join(map(str, requested))} does not fit the network of {checkpoint.path}")
        return requested
    possible = possible_images(checkpoint)
    if len(possible) == 1:
        return possible[0]
    channels = {image[0] for image in possible} or {nets.image_channels(checkpoint.model, shapes)}
    if len(channels) > 1 or None in channels:
        raise ExportError(f"{checkpoint.path}: its weights do not determine the size of its images: give --image CxHxW")
    return *channels, "height", "width"


def possible_images(checkpoint: Checkpoint) -> list[Image]:
    if data := checkpoint.trained_on():
        return [tuple(data["image"])]
    side = checkpoint.option("image-size") or 0
    return [image for image in nets.fitting_images(checkpoint.model, checkpoint.shapes())
            if side in (0, image[1])]


def verify(checkpoint: Checkpoint, image: Extents, normalizes: bool, options: argparse.Namespace) -> bool:
    from exporting import verification

    networks: list[verification.Network] = []
    if onnx := options.to_onnx or (options.source if options.source.suffix == ".onnx" else None):
        networks.append(verification.OnnxNetwork(onnx))
    if state := options.to_torch or (options.source if options.like or options.names else None):
        from exporting import torch_module, torchvision_names

        if options.names:
            network = torchvision_names.network_of(checkpoint)
        else:
            network = torch_module.network_of(torch_module.source_of(checkpoint, image, state.name, normalizes))
        networks.append(verification.TorchNetwork(state, network, normalizes))
    return verification.verify(checkpoint, networks, verification.Request(
        data=options.verify, image=drawn_image(checkpoint, image), trainer=options.trainer))


def drawn_image(checkpoint: Checkpoint, image: Extents) -> Image | None:
    """The size of random images, if more than one is possible."""
    if all(isinstance(extent, int) for extent in image):
        return image
    return min(possible_images(checkpoint), key=lambda one: abs(one[1] - USUAL_SIDE), default=None)
