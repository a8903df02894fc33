#!/usr/bin/env python3
"""Measures the highest rates of PyTorch on a device: a large copy and a large bf16 matrix product. Prints JSON."""

import argparse
import json
import statistics
import time

import torch

REPEATS = 20


def median_seconds(device: str, work) -> float:
    """Times each repetition separately, after a warm-up."""
    seconds = []
    for repeat in range(REPEATS + 3):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            seconds.append(begin.elapsed_time(end) / 1e3)
        else:
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes that a CPU copes with")
    options = parser.parse_args()
    count, side = (1 << 20, 256) if options.small else (1 << 32, 8192)  # bytes; zeros would run faster than real data
    source = torch.randint(256, (count,), dtype=torch.uint8, device=options.device)
    target = torch.empty_like(source)
    copy = median_seconds(options.device, lambda: target.copy_(source))
    a, b = (torch.randn(side, side, device=options.device).to(torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    matmul = median_seconds(options.device, lambda: torch.matmul(a, b, out=product))
    print(json.dumps({"copy_tb_per_s": 2 * count / copy / 1e12, "matmul_tflop_per_s": 2 * side**3 / matmul / 1e12}))


if __name__ == "__main__":
    main()
