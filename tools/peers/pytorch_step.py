#!/usr/bin/env python3
"""The peer's side of a comparison of speed: times PyTorch's training steps and prints one JSON object.

Batches lie in memory in channels_last; SGD with momentum 0.9 in its fused form; the loss is read after the last step.
The first step, with all that is compiled or chosen in it, counts as start-up, as do the imports.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import time

import torch
from torch import nn

from reference_nets import NETWORKS, make_network

CLASSES = 10
BATCHES_IN_MEMORY = 16


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--shape", default="1x28x28", help="of an image; default: %(default)s")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: by autocast")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--timed-steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true", help="by torch.compile; else eager")
    return parser.parse_args()


def seconds_since_process_start() -> float:
    ticks = int(pathlib.Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def libraries() -> str:
    text = torch.__config__.show()
    patterns = (r"MKL-DNN v[\d.]+", r"BLAS_INFO=\w+", r"CPU capability usage: \w+")
    found = (re.search(pattern, text) for pattern in patterns)
    return ", ".join([f"PyTorch {torch.__version__}", *(match[0] for match in found if match)])


def make_step(options: argparse.Namespace):
    """A function that plays one step on the images and labels given and returns the loss."""
    shape = tuple(map(int, options.shape.split("x")))
    network = make_network(options.model, shape, CLASSES).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            return nn.functional.cross_entropy(network(images), labels)

    forward = torch.compile(loss_of) if options.compile else loss_of

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(images, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, shape


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    step, shape = make_step(options)
    samples = options.batch * BATCHES_IN_MEMORY
    images = torch.rand(samples, *shape).contiguous(memory_format=torch.channels_last).split(options.batch)
    labels = torch.randint(CLASSES, (samples,)).split(options.batch)

    step(images[0], labels[0])
    first_step = seconds_since_process_start()
    seconds = []
    for i in range(1, options.warmup_steps + options.timed_steps):
        begin = time.perf_counter()
        loss = step(images[i % BATCHES_IN_MEMORY], labels[i % BATCHES_IN_MEMORY])
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[-options.timed_steps:])
    print(json.dumps({
        "libraries": libraries(),
        "step_seconds_median": median,
        "images_per_second": options.batch / median,
        "peak_resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "first_step_seconds": first_step,
        "loss": loss.item(),
    }))


if __name__ == "__main__":
    main()
