"""Files that appear whole or not at all."""

import os
import pathlib
from typing import Callable

from exporting.errors import ExportError


def write_atomically(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
    """Gives `write` another name to write to. Symbolic links stay, and devices and pipes are written to."""
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
