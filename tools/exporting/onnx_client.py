"""Classifies image files by an ONNX file of tools/export and its F.onnx.json, as `trainer predict` does:

  python3 onnx_client.py F.onnx images ..        needs numpy, Pillow and onnxruntime, and nothing of Tutti
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def prepare(path, rule):
    channels, height, width = rule["image"]
    image = Image.open(path)
    if image.format == "JPEG":
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image).astype(np.uint32) / 257 + 0.5).astype(np.uint8))
    image = image.convert("RGB" if channels == 3 else "L")
    if image.size == (width, height):
        planes = image.split()
    else:
        side, short = rule["resize"]["short_side"], min(image.size)
        size = [extent * side // short for extent in image.size]
        left, top = int((size[0] - width) / 2), int((size[1] - height) / 2)
        cut = left, top, left + width, top + height
        planes = [plane.convert("F").resize(size, Image.Resampling.BILINEAR).crop(cut) for plane in image.split()]
    values = np.stack([np.asarray(plane, np.float32) for plane in planes]) / 255
    mean, deviation = (np.array(rule[name], np.float32).reshape(-1, 1, 1) for name in ("mean", "deviation"))
    return values if rule["normalize_in_graph"] else (values - mean) / deviation


def classify(network, paths):
    rule = json.loads(pathlib.Path(f"{network}.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    for path in paths:
        logits = session.run(None, {"image": prepare(path, rule)[np.newaxis]})[0][0].astype(np.float64)
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        best = int(chances.argmax())
        yield path, (rule["class_names"] or [*map(str, range(len(chances)))])[best], float(chances[best])


if __name__ == "__main__":
    for path, name, chance in classify(sys.argv[1], sys.argv[2:]):
        print(f"{path}: {name} {chance:.6f}")
