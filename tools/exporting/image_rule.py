"""The conversion of images to a network's input, as in `trainer predict` (include/tutti/data/image_recipe.hpp).
tools/export writes it as JSON next to an ONNX file, F.onnx.json, and as the metadata "image_rule" in it."""

import json

from exporting.checkpoint import Checkpoint
from exporting.model import Extents

FORMAT = "tutti image rule 1"


def short_side(checkpoint: Checkpoint, height: int) -> int:
    """8/7 of the network's, rounded; or all of it, if the run has seen whole short sides."""
    return height if checkpoint.trained_on().get("keeps_short_side") else (height * 8 + 3) // 7


def is_turned(checkpoint: Checkpoint) -> bool:
    """Whether JPEG images are turned as their EXIF orientation says; runs of early versions did not."""
    return checkpoint.option("exif") == "on"


def text_of(checkpoint: Checkpoint, image: Extents, normalizes: bool) -> str:
    channels, height, width = image
    statistics = checkpoint.statistics(channels)
    mean, deviation = (values.tolist() for values in statistics) if statistics else ([0.0] * channels, [1.0] * channels)
    trained_on = checkpoint.trained_on()
    turned = is_turned(checkpoint)
    is_open = not (isinstance(height, int) and isinstance(width, int))
    rule = {
        "format": FORMAT, "model": checkpoint.model.name, "step": checkpoint.step,
        "input": "image", "image": list(image), "layout": "batch x channels x height x width, f32",
        "channels": {1: "gray: 0.299 R + 0.587 G + 0.114 B, rounded to a byte before resizing (Pillow's L)",
                     3: "R, G, B"}.get(channels, "as in the data"),
        "decoding": "16 bits become round(value / 257); alpha is dropped"
                    + ("; JPEG is turned as EXIF says" if turned else ""),
        "exif": turned,
        "resize": None if is_open else {
            "when": "the image is not of this height and width already",
            "short_side": short_side(checkpoint, height),
            "long_side": "floor(long * short_side / short)",
            "filter": "triangle, as wide as the shrinking (Pillow's BILINEAR, torchvision's antialias=True)",
            "rounding": "resized pixels are not rounded to bytes",
            "cut": "the centre, from (resized - wanted) / 2 on, rounded towards 0"},
        "values": "(pixel / 255 - mean) / deviation", "mean": mean, "deviation": deviation,
        "normalize_in_graph": normalizes,  # then the network's input is pixel / 255
        "output": "logits; softmax makes probabilities of them", "classes": checkpoint.classes(),
        "class_names": trained_on.get("class_names", [])}
    return json.dumps(rule, ensure_ascii=False, indent=2)
