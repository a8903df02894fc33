#!/usr/bin/env python3
"""Compiles the GPU kernels of a build folder again and reports each that has local values in memory.

Our kernels are bound by memory, so spilled registers and arrays on a stack cost them most. Takes the compiler's
commands from compile_commands.json, writes nothing there, and ends with 1 when there is a finding.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

OF_THE_BUILD = re.compile(r"(-c|-MD|(--generate-code|-gencode|-arch|--gpu-architecture)=.*)$")
PROPERTIES = re.compile(r"Function properties for (\S+)\n"
                        r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def kernel_command(command, architecture):
    """The arguments that compile the same source for one GPU generation only and report its resources, or None."""
    words = shlex.split(command)
    compiler = next((i for i, word in enumerate(words) if pathlib.Path(word).name == "nvcc"), None)
    if compiler is None:
        return None
    words = iter(words[compiler:])
    arguments = []
    for word in words:
        if word in ("-o", "-MF", "-MT"):
            next(words)
        elif not OF_THE_BUILD.match(word):
            arguments.append(word)
    return [*arguments, "-cubin", f"-arch={architecture}", "-Xptxas=-v", "-o", os.devnull]


def measure(entry, architecture):
    """Compiles one source; returns (source, [(function, stack, stores, loads)])."""
    command = kernel_command(entry["command"], architecture)
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{entry['file']} does not compile:\n{done.stderr}")
    found = PROPERTIES.findall(done.stderr)
    return entry["file"], [(name, *map(int, figures)) for name, *figures in found]


def readable(name):
    """A function's name as it is written in the source, if the demangler is installed."""
    if not shutil.which("c++filt"):
        return name
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path, help="the build folder")
    parser.add_argument("--architecture", default="sm_90", help="GPU generation; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once; default: %(default)s")
    options = parser.parse_args()
    entries = [entry for entry in json.loads((options.build / "compile_commands.json").read_text())
               if entry["file"].endswith(".cu") and kernel_command(entry["command"], options.architecture)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        measured = list(pool.map(lambda entry: measure(entry, options.architecture), entries))
    functions = findings = 0
    for source, properties in measured:
        functions += len(properties)
        for name, stack, stores, loads in properties:
            if stack or stores or loads:
                findings += 1
                print(f"{source}: {readable(name)} has a stack frame of {stack} bytes and spills {stores} bytes, read "
                      f"back as {loads}: use fewer registers at a time, and index local arrays by constants only")
    if functions == 0:
        sys.exit(f"{options.build}: no kernels were compiled there: give a build folder configured with CUDA")
    print(f"spills: {functions} functions of {len(measured)} files, {findings or 'no'} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
