"""In the place of torch._weights_only_unpickler in PyTorch 1.13: that one, which runs no code, cannot read numbers with
a fraction, as in the state of an optimizer. This one gives it None instead of them, since no tensor needs them."""

import io
import pickletools
from typing import BinaryIO

from torch import _weights_only_unpickler

FLOAT, FLOAT_BYTES, NONE = "BINFLOAT", 9, b"N"
REFUSAL = "Unsupported operand 71"  # BINFLOAT


def without_floats(file: BinaryIO) -> io.BytesIO:
    """Takes the next pickle from the file."""
    begin = file.tell()
    floats = [place for code, _, place in pickletools.genops(file) if code.name == FLOAT]
    end = file.tell()
    changed = io.BytesIO()
    file.seek(begin)
    for place in floats:
        changed.write(file.read(place - file.tell()) + NONE)
        file.seek(FLOAT_BYTES, io.SEEK_CUR)
    changed.write(file.read(end - file.tell()))
    changed.seek(0)
    return changed


class Unpickler(_weights_only_unpickler.Unpickler):
    def __init__(self, file: BinaryIO, **more):
        super().__init__(without_floats(file), **more)


def load(file: BinaryIO, **more):
    return Unpickler(file, **more).load()
