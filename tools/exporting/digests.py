"""The digests of include/tutti/base/digest.hpp: sums over elements, so long arrays are processed in pieces."""

import numpy as np

BITS = 64
STRIDE = 0x9E3779B97F4A7C15
PIECE = 1 << 20  # elements


def mix64(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash64(name: str) -> int:
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << BITS)
    return int(mix64(np.array([value], np.uint64))[0])


def digest(name: str, value: np.ndarray | str) -> int:
    """The digest of an array, or of the bytes of a text."""
    array = np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else np.ascontiguousarray(value).ravel()
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    start, total = hash64(name), 0
    for first in range(0, bits.size, PIECE):
        piece = bits[first:first + PIECE].astype(np.uint64)
        places = np.arange(first + 1, first + 1 + piece.size, dtype=np.uint64) * np.uint64(STRIDE)
        total += int(mix64(piece + places + np.uint64(start)).sum(dtype=np.uint64))
    return total % (1 << BITS)


def text_of(value: int) -> str:
    return f"{value % (1 << BITS):016x}"
