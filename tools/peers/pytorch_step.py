#!/usr/bin/env python3
"""PyTorch's side of a comparison of speed: times training steps and prints one JSON object.

Batches are in the device's memory in channels_last; SGD with momentum 0.9 in its fused form; the loss is read after the
last step. The first step, with all that is compiled or chosen in it, counts as start-up, as do the imports. On a GPU
cuDNN chooses by timing, and steps are timed together by the device's clock, so that the host does not wait in between.
There are several ways to run a step: eager; compiled by torch.compile; the compiled step, with its update, as one CUDA
graph; and the same after a search for the fastest kernels ("max-autotune").
With --init-method it trains by DistributedDataParallel over gloo, with its fastest settings: static graph, gradients as
views of buckets, and no broadcast of running statistics. The slowest rank's seconds count then.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import sys
import time

import torch
from torch import distributed, nn

from reference_nets import NETWORKS, make_network

CLASSES = 10
BATCHES_IN_MEMORY = 16
# The mode of torch.compile, if any, and whether the whole step is one CUDA graph.
WAYS = {"eager": (None, False), "compiled": ("default", False), "graph": ("default", True),
        "autotuned": ("max-autotune-no-cudagraphs", True)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--shape", default="1x28x28", help="of an image; default: %(default)s")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32", help="bf16: by autocast")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--timed-steps", type=int, default=20)
    parser.add_argument("--way", choices=WAYS, default="eager")
    parser.add_argument("--on-demand", action="store_true",
                        help="for each way that a line on stdin names, time steps once; first print the libraries")
    parser.add_argument("--init-method", help="where this rank finds the others: file://PATH?rank=R&world_size=N")
    return parser.parse_args()


def seconds_since_process_start() -> float:
    ticks = int(pathlib.Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def peak_resident_mib() -> float:
    """The peak of this program; getrusage also counts its parent before exec."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def libraries() -> str:
    text = torch.__config__.show()
    patterns = (r"MKL-DNN v[\d.]+", r"BLAS_INFO=\w+", r"CPU capability usage: \w+")
    found = (re.search(pattern, text) for pattern in patterns)
    return ", ".join([f"PyTorch {torch.__version__}", *(match[0] for match in found if match)])


def make_step(options: argparse.Namespace, way: str, images: torch.Tensor, labels: torch.Tensor):
    """Returns a function that computes one step on such images and labels and returns the loss."""
    mode, is_graph = WAYS[way]
    network = make_network(options.model, tuple(images.shape[1:]), CLASSES).to(options.device)
    network = network.to(memory_format=torch.channels_last).train()
    if distributed.is_initialized():
        network = nn.parallel.DistributedDataParallel(network, static_graph=True, gradient_as_bucket_view=True,
                                                      broadcast_buffers=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bf16"):
            return nn.functional.cross_entropy(network(images), labels)

    forward = torch.compile(loss_of, mode=mode) if mode else loss_of

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(images, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return captured(step, images.clone(), labels.clone()) if is_graph else step


def captured(step, images: torch.Tensor, labels: torch.Tensor):
    """The step as one CUDA graph. It reads these tensors, to which every batch is copied first."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(images, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(images, labels)

    def replay(new_images: torch.Tensor, new_labels: torch.Tensor) -> torch.Tensor:
        images.copy_(new_images)
        labels.copy_(new_labels)
        graph.replay()
        return loss

    return replay


def seconds_of_steps(compute_step, device: str, warmup_steps: int, timed_steps: int) -> float:
    """The seconds of one step: the median of the timed ones, on a GPU their mean."""
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for i in range(warmup_steps):
            compute_step(i)
        begin.record()
        for i in range(timed_steps):
            compute_step(i)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3 / timed_steps
    seconds = []
    for i in range(warmup_steps + timed_steps):
        begin = time.perf_counter()
        compute_step(i)
        seconds.append(time.perf_counter() - begin)
    timed = torch.tensor(seconds[-timed_steps:], dtype=torch.float64)
    if distributed.is_initialized():
        distributed.all_reduce(timed, distributed.ReduceOp.MAX)
    return statistics.median(timed.tolist())


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    if options.init_method:
        distributed.init_process_group("gloo", options.init_method, timeout=datetime.timedelta(seconds=60))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    shape = tuple(map(int, options.shape.split("x")))
    samples = options.batch * BATCHES_IN_MEMORY
    images = torch.rand(samples, *shape, device=options.device).contiguous(memory_format=torch.channels_last)
    images, labels = (values.split(options.batch) for values in
                      (images, torch.randint(CLASSES, (samples,), device=options.device)))

    steps = {}

    def figures(way: str) -> dict:
        """The first time also makes the way's step."""
        if way not in steps:
            steps[way] = make_step(options, way, images[0], labels[0])

        def compute_step(i: int) -> torch.Tensor:
            return steps[way](images[i % BATCHES_IN_MEMORY], labels[i % BATCHES_IN_MEMORY])

        compute_step(0).item()
        first = seconds_since_process_start()
        seconds = seconds_of_steps(compute_step, options.device, options.warmup_steps, options.timed_steps)
        return {"first_step_seconds": first, "step_seconds_median": seconds,
                "images_per_second": options.batch / seconds, "peak_resident_mib": peak_resident_mib(),
                "loss": compute_step(0).item()}

    if options.on_demand:
        print(json.dumps({"libraries": libraries()}), flush=True)
        for line in sys.stdin:
            try:
                print(json.dumps(figures(line.strip())), flush=True)
            except Exception as error:  # the other ways go on
                print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
        return
    print(json.dumps({"libraries": libraries()} | figures(options.way)), flush=True)
    if distributed.is_initialized():
        distributed.barrier()
        os._exit(0)  # a normal exit sometimes aborts in a thread of PyTorch


if __name__ == "__main__":
    main()
