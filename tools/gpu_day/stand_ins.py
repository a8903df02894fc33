#!/usr/bin/env python3
"""What a rehearsal has in place of programs that need a GPU machine: `python` with PyTorch,
`compute-sanitizer` and `ncu`.

Their output has the form of the real one. The last two start the program that they are given.
"""

import json
import subprocess
import sys


def python(*words: str) -> None:
    if words[0] == "-c":
        print(json.dumps({"PyTorch": "none: a rehearsal"}))
    elif words[0].endswith("pytorch_ceilings.py"):
        print(json.dumps({"copy_tb_per_s": 4, "matmul_tflop_per_s": 800}))
    else:
        print(json.dumps({"libraries": "none: a rehearsal"}), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"images_per_second": 200}), flush=True)


def compute_sanitizer(*words: str) -> None:
    test = words[words.index("--tool") + 2:]
    subprocess.run(test, check=True)
    print("========= ERROR SUMMARY: 0 errors")


def ncu(*words: str) -> None:
    """Three steps of two kernels, of which the second runs twice."""
    profiled = words[words.index("--metrics") + 2:]
    subprocess.run(profiled, check=True)
    print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
    for launch, kernel in enumerate(["loss", "norm_sums", "norm_sums"] * 3):
        print(f'"{launch}","{kernel}","gpu__time_duration.sum","ns","1,500"')


if __name__ == "__main__":
    {"python": python, "compute-sanitizer": compute_sanitizer, "ncu": ncu}[sys.argv[1]](*sys.argv[2:])
