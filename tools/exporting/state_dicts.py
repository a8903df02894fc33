"""Reads state dicts from files of PyTorch, and says what other files hold. Code in them is never run."""

import io
import pathlib
import pickle
import pickletools
import re
import tarfile
import zipfile
from typing import Iterator
from unittest import mock

from exporting.errors import ExportError

WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net")  # of a training checkpoint
PREFIXES = ("module.", "_orig_mod.", "model.", "network.", "net.")  # of DDP, torch.compile and wrappers
NESTED = 3  # at most
ZIP, PICKLE = b"PK", b"\x80"
# What state dicts have besides numbers and texts.
OF_TENSORS = re.compile(r"torch\.(_utils\.|storage\.|serialization\.|_tensor\.|nn\.parameter\.)?\w+|"
                        r"collections\.OrderedDict|(__builtin__|builtins)\.set")
DAMAGED = "it is damaged or cut short, or no state dict: copy or download it again"


def load(path: pathlib.Path) -> dict:
    """Returns what the file holds, which may be a training checkpoint."""
    try:
        refuse_others(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = load_tensors(path)
    except ExportError:
        raise
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # its reader may throw any exception
        raise ExportError(f"{path}: {reason(path, error)}") from error
    if not isinstance(state, dict):
        raise ExportError(f"{path}: it holds a {type(state).__name__}, not a state dict: save network.state_dict()")
    return state


def load_tensors(path: pathlib.Path):
    """Always with weights_only=True. PyTorch 1.13 ignores pickle_module, and would run code."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        from exporting import restricted_pickle

        if restricted_pickle.REFUSAL not in str(error):
            raise
        with mock.patch.object(torch.serialization, "_weights_only_unpickler", restricted_pickle):
            return torch.load(path, map_location="cpu", weights_only=True)


def refuse_others(path: pathlib.Path) -> None:
    """Refuses files that torch.load should not even begin to read: it unpacks tar files, and starts TorchScript."""
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise ExportError(f"{path}: it is empty: copy or download it again")
    if path.suffix == ".safetensors":
        return
    if start.startswith(ZIP):
        if not zipfile.is_zipfile(path):
            raise ExportError(f"{path}: it is cut short or damaged: copy or download it again")
        with zipfile.ZipFile(path) as archive:
            if any("/code/" in name or name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ExportError(f"{path}: it holds a network of TorchScript, not a state dict: save "
                                  "network.state_dict() instead")
    elif not start.startswith(PICKLE) or tarfile.is_tarfile(path):
        raise ExportError(f"{path}: it is no file of torch.save: it begins with {start!r}; copy or download it again")


def reason(path: pathlib.Path, error: Exception) -> str:
    """Why PyTorch refuses the file, without its advice to run the code in it."""
    try:
        others = [] if path.suffix == ".safetensors" else code_in(path)
    except (OSError, RuntimeError, zipfile.BadZipFile):  # damaged, too
        others = []
    names = ", ".join(others[:3])
    if any(name.startswith("torch.nn.modules.") for name in others):
        return f"it holds a whole network ({names}), which is code: save network.state_dict() instead"
    if others:
        return (f"it holds more than tensors ({names}), which is code that is not run: save the state dict alone, "
                "torch.save(network.state_dict(), ..)")
    said = str(error).strip().rpartition("WeightsUnpickler error: ")[2].partition("\n")[0]
    return DAMAGED + (f" ({said})" if said and "weights_only" not in said else "")


def code_in(path: pathlib.Path) -> list[str]:
    """The classes and functions that the pickles in the file name, except those of tensors."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            files = [io.BytesIO(archive.read(name)) for name in archive.namelist() if name.endswith("data.pkl")]
    else:
        files = [io.BytesIO(path.read_bytes())] * 4  # the state is the fourth of its pickles
    return [*dict.fromkeys(name for file in files for name in names_in(file))]


def names_in(file: io.BytesIO) -> Iterator[str]:
    """Those in the next pickle of the file."""
    texts = ["", ""]
    try:
        for code, value, _ in pickletools.genops(file):
            if isinstance(value, str):
                texts = [texts[-1], value]
            name = {"GLOBAL": texts[-1].replace(" ", "."), "STACK_GLOBAL": ".".join(texts)}.get(code.name)
            if name and not OF_TENSORS.fullmatch(name):
                yield name
    except ValueError:  # the file ends
        return


def plain(state: dict, known: set[str]) -> tuple[dict, list[str]]:
    """The tensors by their names in a network with the `known` ones, and what had to be changed for that."""
    changes = []
    for _ in range(NESTED):
        wrapper = next((key for key in WRAPPERS if isinstance(state.get(key), dict)), None)
        if wrapper is None:
            break
        state = state[wrapper]
        changes.append(f'a training checkpoint, whose "{wrapper}" is taken')
    tensors = {str(key): value for key, value in state.items() if key != "n_averaged"}  # of an averaged model
    while not known & tensors.keys():
        prefix = next((one for one in PREFIXES if tensors and all(key.startswith(one) for key in tensors)), None)
        if prefix is None:
            break
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
        changes.append(f'names without their "{prefix}"')
    return tensors, changes


def looks(state: dict) -> str:
    """A few words on a state dict of an unknown network."""
    tensors = [str(key) for key, value in state.items() if hasattr(value, "shape")]
    names = ", ".join(tensors[:4] or [str(key) for key in state][:4])
    if not tensors:
        return "it holds no tensors" + (f", only {names}" if names else "")
    return f"it looks like a state dict of another network, with {len(tensors)} tensors: {names}, .."
