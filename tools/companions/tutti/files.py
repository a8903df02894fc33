"""Reads the files of a run. They may come from anyone: pipes and devices are refused, and so are files that would fill
the memory."""

from __future__ import annotations

import errno
import os
import stat

MOST_BYTES = 1 << 26
MOST_OF_RECORDS = 1 << 30


def read(path: str | os.PathLike, most: int = MOST_BYTES, begin: int = 0) -> tuple[bytes, float]:
    """Returns the bytes from `begin` on, and when the file was changed. Throws OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it is too large: it has {status.st_size} bytes, and may have {most}")
        file.seek(begin)
        return file.read(most), status.st_mtime
