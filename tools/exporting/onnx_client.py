"""Classifies image files by an ONNX file of tools/export and its F.onnx.json, as `trainer predict` does:

  python3 onnx_client.py F.onnx IMAGE ..        files, or folders with JPEG, PNG and TIFF files

Needs numpy, Pillow and onnxruntime (pip install numpy pillow onnxruntime), and nothing of Tutti.
"""

import json
import pathlib
import sys

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff")


def prepare(path, rule):
    import numpy as np
    from PIL import Image, ImageOps
    channels, height, width = rule["image"]
    image = Image.open(path)
    if image.format in ("JPEG", "TIFF") and rule.get("exif", True):
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
    import numpy as np
    import onnxruntime
    rule = json.loads(pathlib.Path(f"{network}.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    for path in paths:
        logits = session.run(None, {"image": prepare(path, rule)[np.newaxis]})[0][0].astype(np.float64)
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        best = int(chances.argmax())
        yield path, (rule["class_names"] or [*map(str, range(len(chances)))])[best], float(chances[best])


def pictures_of(words):
    """The files, and those in the folders, in the order of their names."""
    for word in words:
        folder = pathlib.Path(word)
        if not folder.is_dir():
            yield word
            continue
        found = sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
        if not found:
            raise ValueError(f"no JPEG, PNG or TIFF files in the folder '{word}'")
        yield from found


def main(words):
    if {"-h", "--help"} & set(words):
        print(__doc__.strip())
        return 0
    if len(words) < 2:
        print(f"onnx_client.py: give an ONNX file and the images to classify\n\n{__doc__.strip()}", file=sys.stderr)
        return 64
    path = words[0]
    try:
        for path in (words[0], f"{words[0]}.json"):
            with open(path, "rb"):
                pass
        paths = [*pictures_of(words[1:])]
        answers = classify(words[0], paths)
        for path in paths:
            _, name, chance = next(answers)
            print(f"{path}: {name} {chance:.6f}")
    except ImportError as error:
        print(f"onnx_client.py: {error}: pip install numpy pillow onnxruntime", file=sys.stderr)
        return 64
    except BrokenPipeError:  # its reader has enough
        sys.stderr.close()
        return 0
    except (OSError, ValueError, KeyError) as error:
        print(f"onnx_client.py: {path}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 65
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
