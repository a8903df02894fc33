"""The seal at the end of a file, as include/tutti/storage/seal.hpp describes it. It is verified before HDF5 reads
the file, since HDF5 crashes on some damaged files."""

import pathlib
import struct

import h5py
import numpy as np

from exporting import digests

MARK = b"tuttisea"
TAIL = struct.Struct("<3Q8s")  # runs, bytes before the seal, digest, mark
Run = tuple[int, int]  # offset and length of bytes that the seal leaves out


def add(path: pathlib.Path) -> None:
    """The seal leaves out arrays of f32, which have digests in the checkpoint."""
    runs: list[Run] = []

    def take(_: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype == np.float32 and item.id.get_offset() is not None:
            runs.append((item.id.get_offset(), item.id.get_storage_size()))

    with h5py.File(path, "r") as file:
        file.visititems(take)
    content = path.read_bytes()
    runs.sort()
    with path.open("ab") as file:
        file.write(struct.pack(f"<{2 * len(runs)}Q", *(number for run in runs for number in run)))
        file.write(TAIL.pack(len(runs), len(content), digest(content, runs), MARK))


def fault(content: bytes) -> str:
    """Returns what is wrong, or "" if the seal matches."""
    if len(content) < TAIL.size or content[-len(MARK):] != MARK:
        return "it has no seal: it was not written by this program, or is cut short"
    count, length, expected, _ = TAIL.unpack(content[-TAIL.size:])
    if length + 16 * count + TAIL.size != len(content):
        return "it is damaged: its seal is for a file of another length"
    numbers = struct.unpack(f"<{2 * count}Q", content[length:-TAIL.size])
    runs = [*zip(numbers[::2], numbers[1::2])]
    ends = [0, *(offset + size for offset, size in runs)]
    in_order = all(end <= offset for end, (offset, _) in zip(ends, runs)) and ends[-1] <= length
    if not in_order or digest(content[:length], runs) != expected:
        return "it is damaged: its structures do not have the digest in its seal"
    return ""


def digest(content: bytes, runs: list[Run]) -> int:
    pieces, at = [], 0
    for offset, length in [*runs, (len(content), 0)]:
        pieces.append(content[at:offset])
        at = offset + length
    numbers = np.array(runs, np.uint64).ravel()
    return (digests.digest("file", np.frombuffer(b"".join(pieces), np.uint8)) +
            digests.digest("runs", numbers)) % (1 << digests.BITS)
