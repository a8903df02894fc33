"""Checkpoints, as docs/formats.md describes them field by field.

Checkpoints that are written here have a seal, but no manifest and no optimizer state: `trainer eval`, `predict`,
`inspect`, `diff` and --init-from read them, --resume does not."""

import dataclasses
import hashlib
import io
import json
import pathlib
import re
import tomllib

import h5py
import numpy as np

from exporting import digests, seals
from exporting.errors import ExportError
from exporting.model import Model, Shapes, parse
from exporting.whole_file import write_atomically

FORMAT = 2
DIGESTS = "/run/digests"
SAVED = ("/parameters/", "/statistics/", "/progress/", "/run/", "/format_version")  # groups that are written
Value = np.ndarray | str


@dataclasses.dataclass
class Checkpoint:
    path: pathlib.Path
    values: dict[str, Value]  # all datasets by their paths, except their digests
    is_changed: bool = False  # they are not those of the file

    def __post_init__(self) -> None:
        self.model: Model = parse(self.text("/run/model"), str(self.path))

    def text(self, place: str) -> str:
        value = self.values.get(place)
        if not isinstance(value, str):
            raise ExportError(f"{self.path}: it has no text {place}; give a checkpoint that trainer wrote")
        return value

    def array(self, place: str) -> np.ndarray:
        value = self.values.get(place)
        if not isinstance(value, np.ndarray):
            raise ExportError(f"{self.path}: its model has {place}, but it holds no such array")
        return value

    def shapes(self) -> Shapes:
        return {place: self.array(place).shape for _, _, place in self.model.arrays()}

    def classes(self) -> int:
        return next(self.array(place).shape[0] for _, kind, place in reversed([*self.model.arrays()])
                    if kind == "weight")

    def averages(self) -> dict[str, Value]:
        return {place: value for place, value in self.values.items() if place.startswith("/averages/")}

    def choose_weights(self, choice: str | None) -> None:
        """Puts the average (`ema`) in the place of the weights of the last step: on request, or if there is one."""
        averages = self.averages()
        if choice == "ema" and not averages:
            raise ExportError(f"{self.path}: it holds no average, since its run has no --ema: leave --weights out")
        self.is_changed = bool(averages)
        for place, value in averages.items():
            del self.values[place]
            for group in ("/parameters/", "/statistics/"):
                name = place.replace("/averages/", group)
                if choice != "last" and name in self.values:
                    self.values[name] = value

    @property
    def step(self) -> int:
        return int(self.array("/progress/step"))

    def option(self, name: str) -> object:
        """A resolved option of the run."""
        try:
            return tomllib.loads(self.text("/run/configuration")).get(name)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ExportError(f"{self.path}: /run/configuration cannot be read: {error}") from error

    def trained_on(self) -> dict:
        """"image", "classes", "class_names" and "keeps_short_side" of the data; empty where an early version saved the
        checkpoint."""
        if "/run/data" not in self.values:
            return {}
        try:
            data = json.loads(self.text("/run/data"))
            image, classes, names = data["image"], data["classes"], data["class_names"]
            is_valid = all(type(extent) is int and extent > 0 for extent in [*image, classes]) and len(image) == 3 and \
                all(isinstance(name, str) for name in names) and len(names) in (0, classes)
            keeps_short_side = data.get("keeps_short_side") is True
        except (ValueError, KeyError, TypeError, RecursionError):
            is_valid = False
        if not is_valid:
            raise ExportError(f"{self.path}: /run/data is not that of a checkpoint")
        return {"image": image, "classes": classes, "class_names": names, "keeps_short_side": keeps_short_side}

    def statistics(self, channels: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and deviation, of pixel / 255, by which the images are normalised."""
        words = str(self.option("normalize") or "none")
        if words == "none":
            return None
        try:
            parts = [np.array([float(word) for word in part.split(",")]) for part in words.split("/")]
            mean, deviation = (np.broadcast_to(part, channels) for part in parts)
        except ValueError as error:
            raise ExportError(f"{self.path}: its normalize = {words!r} is not M/S ({error})") from error
        if not (np.isfinite([mean, deviation]).all() and (deviation > 0).all()):
            raise ExportError(f"{self.path}: by its normalize = {words!r} no image can be normalised")
        return mean, deviation


def read(path: pathlib.Path) -> Checkpoint:
    """Reads a file, the newest good one of a run's folder, or RUN@best or RUN@STEP. Everything is verified: by the
    manifest if there is one, and by the digests in each file."""
    choice = re.fullmatch(r"(.+)@(best|\d+)", str(path))
    if choice and not path.exists():
        return read_choice(pathlib.Path(choice[1]), choice[2])
    if not path.is_dir():
        return read_file(path)
    return read_newest(path)


def read_choice(path: pathlib.Path, which: str) -> Checkpoint:
    step = int(read_newest(path).array("/progress/best")[0]) if which == "best" else int(which)
    for manifest in manifests(path):
        if int(manifest.stem.removeprefix("step-")) == step:
            return read_file(manifest.with_suffix(".h5"))
    steps = ", ".join(str(int(manifest.stem.removeprefix("step-"))) for manifest in reversed(manifests(path)))
    raise ExportError(f"{path}: it holds no checkpoint of step {step} (@{which}); there are those of steps {steps}")


def manifests(path: pathlib.Path) -> list[pathlib.Path]:
    """The manifests of complete checkpoints, the newest first."""
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    return [found for found in sorted(folder.glob("step-*.json"), reverse=True) if "." not in found.stem]


def read_newest(path: pathlib.Path) -> Checkpoint:
    faults = []
    for manifest in manifests(path):
        try:
            return read_file(manifest.with_suffix(".h5"))
        except ExportError as error:
            faults.append(str(error))
    raise ExportError(f"{path}: " + ("no checkpoint in it is good: " + "; ".join(faults) if faults else
                                     "it holds no checkpoints: give a run's folder, or a checkpoint (.h5)"))


def read_file(path: pathlib.Path) -> Checkpoint:
    values: dict[str, Value] = {}
    for name, content in contents(path):
        values = values_of(content, name) | values
    return Checkpoint(path, values)


def contents(path: pathlib.Path) -> list[tuple[pathlib.Path, bytes]]:
    """The contents of a checkpoint's files. A very large state has more than one file. A file without a manifest needs
    a seal."""
    manifest = path.with_suffix(".json")
    try:
        if not manifest.exists():
            return [(path, sealed(path))]
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        found = [(path.with_name(file["file"]), path.with_name(file["file"]).read_bytes()) for file in files]
    except OSError as error:
        raise ExportError(f"{error.filename}: {error.strerror}; give a checkpoint (.h5) or a run's folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{manifest}: it is no manifest of a checkpoint ({error})") from error
    for (name, content), file in zip(found, files):
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise ExportError(f"{name}: it is damaged: its SHA-256 is not what its manifest says")
    return found


def sealed(path: pathlib.Path) -> bytes:
    content = path.read_bytes()
    if fault := seals.fault(content):
        raise ExportError(f"{path}: {fault}, and it has no manifest; a file of an early version that you "
                          f"trust gets a seal by trainer inspect '{path}' --seal NEW.h5")
    return content


def values_of(content: bytes, path: pathlib.Path) -> dict[str, Value]:
    values: dict[str, Value] = {}

    def take(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            value = item[()]
            values[f"/{name}"] = value.decode() if isinstance(value, bytes) else np.asarray(value)

    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(take)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: it is no readable HDF5 file ({error})") from error
    version = int(values.get("/format_version", -1))
    if version != FORMAT:
        raise ExportError(f"{path}: " + (f"it has format {version}, this tool reads {FORMAT}" if version >= 0 else
                                         "it is no checkpoint: give one that trainer wrote"))
    if values.pop(DIGESTS, None) != digest_lines(values):
        raise ExportError(f"{path}: it is damaged: its values do not have the digests that it holds")
    return values


def digest_lines(values: dict[str, Value]) -> str:
    found = {place: digests.digest(place[place.find("/", 1) + 1:], values[place]) for place in sorted(values)}
    lines = [f"{digests.text_of(value)} {place}\n" for place, value in found.items()]
    return "".join(lines) + f"{digests.text_of(sum(found.values()))} all\n"


def weights_digest(checkpoint: Checkpoint) -> str:
    """Returns the digest that trainer prints."""
    return digests.text_of(sum(digests.digest(place.removeprefix("/parameters/"), value)
                               for place, value in checkpoint.values.items() if place.startswith("/parameters/")))


def write(checkpoint: Checkpoint) -> None:
    """Writes the file atomically."""
    values = {place: value for place, value in checkpoint.values.items() if place.startswith(SAVED)}
    for place, value in values.items():
        if isinstance(value, np.ndarray) and not np.isfinite(value).all():
            raise ExportError(f"{checkpoint.path}: {place} holds values that are not finite, which no checkpoint does")
    values[DIGESTS] = digest_lines(values)
    write_atomically(checkpoint.path, lambda unfinished: write_datasets(unfinished, values))


def write_datasets(path: pathlib.Path, values: dict[str, Value]) -> None:
    with h5py.File(path, "w") as file:
        for place, value in sorted(values.items()):
            stored = value.encode() if isinstance(value, str) else value
            kind = h5py.string_dtype("utf-8", len(stored) + 1) if isinstance(value, str) else value.dtype
            file.create_dataset(place, data=stored, dtype=kind, track_times=False)
    seals.add(path)
