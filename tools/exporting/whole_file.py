"""Files that appear whole or not at all."""

import os
import pathlib
from typing import Callable

from exporting.errors import ExportError


def write_whole(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
    """Gives `write` another name to write to."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise ExportError(f"{path}: it cannot be written: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
