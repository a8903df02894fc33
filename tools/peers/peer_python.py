"""Finds a Python that has PyTorch and similar packages. It is not part of Tutti: the user installs it to compare."""

import importlib.util
import os
import sys

PACKAGES = ("torch", "numpy", "h5py")


def remedy(packages: tuple[str, ...]) -> str:
    return f"python3 -m venv venv && venv/bin/pip install {' '.join(packages)}, then TUTTI_PYTHON=venv/bin/python"


REMEDY = remedy(PACKAGES)


def interpreter() -> str:
    return os.environ.get("TUTTI_PYTHON") or sys.executable


def go_on_with(*packages: str) -> None:
    """Returns if this Python has them; else restarts the script in $TUTTI_PYTHON, or prints the remedy."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if not missing:
        return
    other = os.environ.pop("TUTTI_PYTHON", "")  # only once
    if other:
        os.execv(other, [other, *sys.argv])
    sys.exit(f"{sys.executable} lacks {', '.join(missing)}: {remedy(packages)}")


def go_on_with_torch() -> None:
    go_on_with(*PACKAGES)
