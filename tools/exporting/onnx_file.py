"""Converts checkpoints to ONNX files and back.

In addition to the graph, a file has the checkpoint's progress and texts as metadata, such as "tutti/progress/step" or
"tutti/run/model", with values as JSON. So only files that were written here can be converted back."""

import json
import pathlib

import numpy as np

from exporting import image_rule, protobuf
from exporting.checkpoint import SAVED, Checkpoint, Value
from exporting.errors import ExportError
from exporting.model import Extents
from exporting.onnx_graph import graph_of
from exporting.onnx_messages import FLOAT_ARRAY, MODEL
from exporting.whole_file import write_atomically

OPSET, IR_VERSION = 17, 8  # of 2022: any runtime in use reads them
MOST_BYTES = (1 << 31) - 1  # of any message
PREFIX = "tutti"
ARRAYS = ("/parameters/", "/statistics/")


def write(checkpoint: Checkpoint, path: pathlib.Path, image: Extents, normalizes: bool) -> None:
    metadata = [{"key": PREFIX + place, "value": json_of(value)} for place, value in checkpoint.values.items()
            if place.startswith(SAVED) and not place.startswith(ARRAYS)]
    normalize = str(checkpoint.option("normalize") or "none")
    metadata.append({"key": "normalize", "value": f"in the graph: {normalize}" if normalizes else normalize})
    if names := checkpoint.trained_on().get("class_names"):
        metadata.append({"key": "class_names", "value": json.dumps(names, ensure_ascii=False)})
    rule = image_rule.text_of(checkpoint, image, normalizes)
    metadata.append({"key": "image_rule", "value": rule})
    content = protobuf.encode(MODEL, {
        "ir_version": IR_VERSION, "producer_name": "tutti",
        "producer_version": checkpoint.text("/run/versions").partition(";")[0].removeprefix("tutti "),
        "doc_string": f"{checkpoint.model.name} after {checkpoint.step} steps",
        "graph": graph_of(checkpoint, image, normalizes),
        "opset_import": [{"domain": "", "version": OPSET}], "metadata_props": metadata})
    if len(content) > MOST_BYTES:
        raise ExportError(f"{path}: the network takes {len(content)} bytes, and an ONNX file holds at most "
                          f"{MOST_BYTES}: use --to-torch")
    write_atomically(path, lambda unfinished: unfinished.write_bytes(content))
    write_atomically(path.with_name(f"{path.name}.json"),
                lambda unfinished: unfinished.write_text(f"{rule}\n", encoding="utf-8"))


def json_of(value: Value) -> str:
    return json.dumps(value if isinstance(value, str) else value.tolist(), ensure_ascii=False)


def value_of(text: str) -> Value:
    """JSON distinguishes whole numbers, such as counts, from others, such as seconds."""
    value = json.loads(text)
    return value if isinstance(value, str) else np.array(value, np.int64 if is_whole(value) else np.float64)


def is_whole(value: object) -> bool:
    return all(isinstance(one, int) for one in (value if isinstance(value, list) else [value]))


def read(path: pathlib.Path, target: pathlib.Path) -> Checkpoint:
    """The checkpoint from which the file was written, with the path `target`."""
    try:
        message = protobuf.decode(MODEL, path.read_bytes())
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from error
    except ExportError as error:
        raise ExportError(f"{path}: {error}") from error
    metadata = {entry.get("key", ""): entry.get("value", "") for entry in message.get("metadata_props", [])}
    try:
        values = {key.removeprefix(PREFIX): value_of(text) for key, text in metadata.items()
                  if key.startswith(f"{PREFIX}/")}
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ExportError(f"{path}: tools/export has not written its metadata ({error})") from error
    if not {"/run/model", "/format_version"} <= values.keys() or isinstance(values["/format_version"], str):
        raise ExportError(f"{path}: tools/export has not written it: of other ONNX files no checkpoint can be made")
    values["/format_version"] = values["/format_version"].astype(np.int32)
    checkpoint = Checkpoint(target, values)
    arrays = {tensor.get("name"): tensor for tensor in message.get("graph", {}).get("initializer", [])}
    for layer, kind, place in checkpoint.model.arrays():
        name = f"{layer.name}/{kind}"
        if name not in arrays:
            raise ExportError(f"{path}: it has no array {name} any more: give the file as tools/export wrote it")
        values[place] = array_of(arrays[name], f"{path}: array {name}")
    return checkpoint


def array_of(tensor: dict, what: str) -> np.ndarray:
    if tensor.get("data_type") != FLOAT_ARRAY or tensor.get("data_location"):
        raise ExportError(f"{what}: it is not in this file as fp32: give the file as tools/export wrote it")
    shape = tuple(tensor.get("dims", []))
    values = np.frombuffer(tensor["raw_data"], "<f4") if "raw_data" in tensor else \
        np.array(tensor.get("float_data", []), np.float32)
    if values.size != int(np.prod(shape, dtype=np.int64)):
        raise ExportError(f"{what}: {values.size} values are not those of the shape {shape}")
    return values.reshape(shape)
