"""Files that a companion writes: a failure ends it with status 73."""

import errno
import os
import sys
import tempfile

from tutti.program import CANNOT_SAVE, Failure, describe


def write_atomically(path: str, data: bytes, follows_links: bool = True) -> None:
    """Replaces a regular file atomically. Devices, pipes and the targets of links are written directly, unless the user
    has not named the file: links in a run's folder may lead anywhere, and are replaced."""
    try:
        if not follows_links:
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            replace(path, data)
            return
        if path == "-" or is_stdout(path):
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            return
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb", opener=open_stream) as file:
                file.write(data)
            return
        path = os.path.realpath(path)  # not of a pipe, as /dev/stderr may be one: it has no path
        replace(path, data)
    except OSError as error:
        remedy = ": start what reads from it first" if error.errno == errno.ENXIO else ""
        raise Failure(CANNOT_SAVE, f"cannot save '{path}': {describe(error)}{remedy}") from error


def replace(path: str, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix=".new-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~umask())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def is_stdout(path: str) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def open_stream(path: str, flags: int) -> int:
    """Does not wait for a pipe's reader."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def append(path: str, data: bytes) -> None:
    try:
        with open(path, "ab") as file:
            file.write(data)
    except OSError as error:
        raise Failure(CANNOT_SAVE, f"cannot save '{path}': {describe(error)}") from error


def make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise Failure(CANNOT_SAVE, f"cannot make '{path}': {describe(error)}; choose a folder that can be written") \
            from error


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
