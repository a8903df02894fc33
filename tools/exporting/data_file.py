"""Data sets in one HDF5 file, as docs/formats.md describes them field by field."""

import pathlib

import h5py
import numpy as np

from exporting import digests, seals
from exporting.errors import ExportError

FORMAT = "tutti data set 1"


def read_images(path: pathlib.Path, most: int) -> np.ndarray:
    """Reads the first images, of the test set if there is one: N x C x H x W bytes."""
    try:
        with h5py.File(path, "r") as file:
            return file["test/images" if "test" in file else "train/images"][:most]
    except (OSError, KeyError) as error:
        raise ExportError(f"{path}: it holds no data set: {error}") from error


def write_images(path: pathlib.Path, images: np.ndarray, classes: int) -> None:
    """Writes a training set of these images, for a network with `classes` classes. The labels are arbitrary."""
    labels = (np.arange(len(images)) % classes).astype(np.int32)
    digest = digests.digest("images", images) + digests.digest("labels", labels)
    channels = images.reshape(*images.shape[:2], -1).swapaxes(0, 1).reshape(images.shape[1], -1) / 255
    with h5py.File(path, "w") as file:
        for name, value in (("format", FORMAT), ("name", path.stem), ("class_names", ""),
                            ("train/digest", digests.text_of(digest))):
            file.create_dataset(name, data=value.encode(), dtype=h5py.string_dtype("utf-8", len(value) + 1))
        for name, value in (("classes", np.array([classes], np.int32)), ("mean", channels.mean(1)),
                            ("deviation", channels.std(1)), ("train/images", images), ("train/labels", labels)):
            file.create_dataset(name, data=value, track_times=False)
    seals.add(path)
