"""Finds a Python that has PyTorch and similar packages. It is not part of Tutti: the user installs it to compare.

Old versions of Python must be able to read this file."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

PACKAGES = ("torch", "numpy", "h5py")
SYSTEM = "/usr/bin/python3"  # has the distribution's packages
DEBIAN = ("torch", "torchvision", "numpy", "h5py")  # as python3-torch, and so on
CHECK = ("import importlib.util, sys; "
         "sys.exit(sys.version_info < {} or None in map(importlib.util.find_spec, sys.argv[1:]))")


def remedy(packages: tuple[str, ...]) -> str:
    names = " ".join(f"python3-{name}" for name in packages)
    in_venv = f"python3 -m venv venv && venv/bin/pip install {' '.join(packages)}, then TUTTI_PYTHON=venv/bin/python"
    return f"apt install {names}, or {in_venv}" if set(packages) <= set(DEBIAN) else in_venv


REMEDY = remedy(PACKAGES)


def interpreter() -> str:
    return os.environ.get("TUTTI_PYTHON") or sys.executable


def go_on_with(*packages: str, least: tuple[int, int] = (3, 9)) -> None:
    """Returns if this Python has them; else restarts the script in $TUTTI_PYTHON, or in the system's Python if that has
    them, or prints the remedy."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    is_old = sys.version_info < least
    if not missing and not is_old:
        return
    chosen = os.environ.pop("TUTTI_PYTHON", "")  # only once
    if chosen:
        restart_in(chosen, f"TUTTI_PYTHON={chosen}: it cannot be started: {{}}; give the path of another Python, or "
                           "unset TUTTI_PYTHON")
    if sys.executable != SYSTEM and has(SYSTEM, packages, least):
        restart_in(SYSTEM, f"{SYSTEM}: it cannot be started: {{}}")
    if is_old:
        sys.exit("{} needs Python {}.{} or newer, and {} is older: name another one by TUTTI_PYTHON".format(
            sys.argv[0], *least, sys.executable))
    sys.exit(f"{sys.executable} lacks {', '.join(missing)}: {remedy(packages)}")


def has(python: str, packages: tuple[str, ...], least: tuple[int, int]) -> bool:
    try:
        return subprocess.run([python, "-c", CHECK.format(least), *packages], stderr=subprocess.DEVNULL,
                              check=False).returncode == 0
    except OSError:
        return False


def restart_in(python: str, failure: str) -> None:
    try:
        os.execv(python, [python, *sys.argv])
    except OSError as error:
        sys.exit(failure.format(error.strerror))


def go_on_with_torch() -> None:
    go_on_with(*PACKAGES)
