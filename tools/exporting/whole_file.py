"""Files that are written atomically."""

import os
import pathlib
from typing import Callable

from exporting.errors import ExportError


def write_atomically(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
    """Calls `write` with a temporary path and renames it. Keeps symbolic links, and writes to devices and pipes."""
    target = path.resolve()
    is_stream = path.exists() and not path.is_file()
    unfinished = path if is_stream else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(unfinished)
        if not is_stream:
            unfinished.replace(target)
    except OSError as error:
        raise ExportError(f"{path}: it cannot be written: {error.strerror or error}") from error
    finally:
        if not is_stream:
            unfinished.unlink(missing_ok=True)
