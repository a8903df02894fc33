"""The parts that check the machine and whether our programs work at all: versions, smoke, ceilings, sanitizers."""

import json
import os
import re
from concurrent import futures

from gpu_day import machine
from gpu_day.session import PEERS, PartResult, Session, reason_in
from peers.tables import number

SANITIZERS = {"sanitizers-memory": ("memcheck", "initcheck"), "sanitizers-threads": ("racecheck", "synccheck")}


def versions(session: Session, result: PartResult) -> None:
    result.figure("commit", session.bundle["commit"])
    rows = [[name, value] for name, value in session.gpu.items()]
    code = ("import json,torch; c=torch.cuda.is_available(); print(json.dumps({'PyTorch': torch.__version__,"
            "'CUDA of PyTorch': str(torch.version.cuda), 'cuDNN of PyTorch': str(torch.backends.cudnn.version()),"
            "'NCCL of PyTorch': '.'.join(map(str, torch.cuda.nccl.version())) if c else 'none'}))")
    rows += [[name, value] for name, value in json.loads(python(session, "-c", code).splitlines()[-1]).items()]
    for line in session.run(session.trainer("--version")).splitlines():
        rows.append(["trainer --version", line])
    words = ["bench", "step", *session.processor_words(), "--warmup-steps", 1, "--timed-steps", 1]
    figures = session.folder / "versions.json"
    try:  # it reports the libraries that it finds
        session.run(session.trainer(*words, "--json", figures))
        rows.append(["trainer's libraries", json.loads(figures.read_text(encoding="utf-8"))["libraries"]])
    finally:
        for tool in ("compute-sanitizer", "ncu", "nvcc"):
            rows.append([tool, machine.find_tool(tool) or "not found"])
        rows += [["lacking", line] for line in session.warnings]
        result.table("The machine", ["what", "found"], rows)


def python(session: Session, *words: object) -> str:
    """Runs this Python, which has torch, in the environment of the machine, not of the bundle."""
    return session.run([*session.tool("python"), *words], environment=dict(os.environ))


def ceilings(session: Session, result: PartResult) -> None:
    words = [PEERS / "pytorch_ceilings.py", "--device", session.device]
    figures = json.loads(python(session, *words, *session.full([], ["--small"])).splitlines()[-1])
    result.figure("copy_tb_per_s", figures["copy_tb_per_s"])
    result.figure("matmul_tflop_per_s", figures["matmul_tflop_per_s"])
    result.table("Ceilings, by PyTorch, medians", ["what", "measured"],
                 [["copy on the device, TB/s read and written", number(figures["copy_tb_per_s"])],
                  ["bf16 matrix product on random data, TFLOP/s", number(figures["matmul_tflop_per_s"])]])


RANDOM_IMAGES = ["--data", "synthetic:4096x1x28x28:10", "--device", "cuda", "--test-every", 0, "--log-every", 1]
SMOKE = {  # ranks, options of train
    "mlp fp32, no graphs": (1, ["--model", "mlp", "--precision", "fp32", "--record-steps", "off", "--steps", 3]),
    "lenet bf16, no graphs": (1, ["--model", "lenet", "--precision", "bf16", "--record-steps", "off", "--steps", 6]),
    "lenet bf16": (1, ["--model", "lenet", "--precision", "bf16", "--steps", 6]),
    "resnet18 bf16": (1, ["--model", "resnet18", "--precision", "bf16", "--batch-size", 256, "--lr", 0.01, "--steps",
                          6]),
    "resnet18 fp32": (1, ["--model", "resnet18", "--precision", "fp32", "--lr", 0.01, "--steps", 6]),
    "lenet fp32, 2 NCCL ranks": (2, ["--model", "lenet", "--precision", "fp32", "--comm", "nccl", "--share-device",
                                     "--steps", 5, "--stall-timeout", 40]),
    "resnet18 bf16, 2 NCCL ranks": (2, ["--model", "resnet18", "--precision", "bf16", "--comm", "nccl",
                                        "--share-device", "--steps", 3, "--lr", 0.01, "--stall-timeout", 40]),
}


def smoke(session: Session, result: PartResult) -> None:
    """Two at a time; each is known to take under 8 s, so that one that hangs leaves time for the others."""
    small = session.full([], ["--batch-size", 8])

    def status_of(name: str) -> tuple[str, int | str, str]:
        ranks, words = SMOKE[name]
        command = session.trainer("train", *RANDOM_IMAGES, "--search-plans", "off", *words, *small, ranks=ranks)
        return name, *session.status_of(command, seconds=30)

    rows = []
    with futures.ThreadPoolExecutor(2) as workers:
        names = list(session.full(SMOKE, ["mlp fp32, no graphs", "lenet bf16", "lenet fp32, 2 NCCL ranks"]))
        for name, status, output in workers.map(status_of, names):
            rows.append([name, "works" if status == 0 else f"FAILED ({status})", reason_in(output)[-150:]])
            if status != 0:
                result.line(f"{name}: {status}: {reason_in(output)}")
    result.table("A few steps of each", ["", "", "its last line"], rows)
    result.figure("failed", sum(row[1] != "works" for row in rows))


def sanitizers(session: Session, result: PartResult, checks: tuple[str, ...]) -> None:
    """Checks our kernels only: those of libraries would take most of the time, and we cannot fix them."""
    words = [*session.tool("compute-sanitizer"), "--error-exitcode", 9, "--print-limit", 5, "--report-api-errors",
             "no", "--kernel-regex", "kns=tutti", "--tool"]
    networks = session.full({"resnet18": "bf16", "lenet": "fp32"}, {"lenet": "bf16"})
    runs = [(check, model) for check in checks for model in networks]

    def status_of(check: str, model: str) -> tuple[int | str, str]:
        step = session.trainer("bench", "step", "--device", "cuda", "--model", model, "--precision", networks[model],
                               "--batch-size", 8, "--data", "synthetic:64x1x28x28:10", "--search-plans", "off",
                               "--record-steps", "off", "--warmup-steps", 1, "--timed-steps", 1)
        return session.status_of([*words, check, *step])

    rows = []
    with futures.ThreadPoolExecutor(len(runs)) as workers:
        for (check, model), (status, output) in zip(runs, workers.map(lambda one: status_of(*one), runs)):
            summary = (re.findall(r"={9} (?:ERROR|RACECHECK) SUMMARY: (.*)", output) or ["no summary"])[-1]
            clean = status == 0 and summary.startswith("0 ")
            rows.append([f"{check} {model} {networks[model]}", "clean" if clean else f"NOT CLEAN ({status})", summary])
    result.figure("unclean", sum(row[1] != "clean" for row in rows))
    result.table("compute-sanitizer on our kernels in training steps", ["check", "result", "summary"], rows)
    for row in rows:
        result.line(", ".join(row))
