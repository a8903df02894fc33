"""Work beside the parts: reading libraries into the page cache, and what PyTorch compiles, which its caches keep.

It stands still while a part measures speed: stopped processes use neither the GPU nor a core.
"""

import collections
import contextlib
import glob
import os
import pathlib
import signal
import subprocess
import threading
import time
from typing import Iterator

SIDE_BY_SIDE = 3


def descendants(root: int) -> list[int]:
    """The process and all below it, from /proc; compilers start workers in sessions of their own."""
    children = collections.defaultdict(list)
    for entry in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = pathlib.Path(entry).read_text(encoding="utf-8", errors="replace")
            children[int(text.rpartition(")")[2].split()[1])].append(int(text.split()[0]))
    found = [root]
    for process in found:
        found += children[process]
    return found


class Background:
    """Runs commands in the order of their start, a few at a time, with a low priority."""

    def __init__(self, log: pathlib.Path):
        self._log = log.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, list, dict]] = []
        self._running: dict[str, subprocess.Popen] = {}
        self._ended: dict[str, int] = {}
        self._stands_still = False
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def add(self, name: str, command: list, environment: dict[str, str]) -> None:
        with self._lock:
            self._waiting.append((name, [str(word) for word in command], environment))

    def _serve(self) -> None:
        while not self._closed:
            with self._lock:
                for name, process in list(self._running.items()):
                    if process.poll() is not None:
                        self._ended[name] = self._running.pop(name).returncode
                while self._waiting and len(self._running) < SIDE_BY_SIDE and not self._stands_still:
                    name, command, environment = self._waiting.pop(0)
                    self._running[name] = subprocess.Popen(
                        ["nice", "-n", "5", *command], env=environment, stdin=subprocess.DEVNULL, stdout=self._log,
                        stderr=self._log, process_group=0)
            time.sleep(0.1)

    def wait_for(self, name: str, seconds: float) -> bool:
        """Whether it has ended well. It comes first of all that waits; what was never added has ended well, too."""
        with self._lock:
            self._waiting.sort(key=lambda one: one[0] != name)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._lock:
                if name not in self._running and all(one[0] != name for one in self._waiting):
                    return self._ended.get(name, 0) == 0
            time.sleep(0.1)
        return False

    def _signal(self, number: int) -> None:
        for process in self._running.values():
            for one in descendants(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        with self._lock:
            self._stands_still = True
            self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            with self._lock:
                self._stands_still = False
                self._signal(signal.SIGCONT)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._waiting.clear()
            self._signal(signal.SIGKILL)
            for process in self._running.values():
                process.wait()
        self._log.close()
