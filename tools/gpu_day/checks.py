"""The parts that check the machine and our programs one by one: versions, ceilings, tests, sanitizers, profile."""

import collections
import csv
import json
import os
import re

from gpu_day import machine
from gpu_day.session import PEERS, PartFailed, PartResult, Session
from peers.tables import number

# Under a sanitizer everything is many times slower, so only kernels are tested, one program at a time.
KERNEL_TEST = re.compile(r"^backend\.cuda")
SANITIZERS = {"sanitizers-memory": ("memcheck", "initcheck"), "sanitizers-threads": ("racecheck", "synccheck")}
PHASES = [  # of a step, by the names of kernels; the first match counts
    ("convolutions", r"cudnn|conv|xmma|implicit|wgrad|dgrad|fprop|nhwc"),
    ("dense layers", r"gemm|cublas|cutlass|nvjet|splitK|linear"),
    ("batch norms", r"norm|statistic"), ("pooling", r"pool"), ("loss", r"loss|softmax|cross_entropy"),
    ("optimizer", r"sgd|adam|lars|momentum|optimi"), ("sums between ranks", r"nccl"),
    ("images", r"image|augment|gather|batch"), ("formats", r"convert|format|transpose|pad")]


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


def test_environment(session: Session, test: dict) -> dict[str, str]:
    given = (word.replace("{bundle}", str(session.root)).partition("=") for word in test["environment"])
    return session.environment | {name: value for name, _, value in given}


def test_command(session: Session, test: dict) -> list[str]:
    return [word.replace("{bundle}", str(session.root)) for word in test["command"]]


def cases_passed(output: str) -> int:
    return sum(int(count) for count in re.findall(r"\[  PASSED  \] (\d+) test", output))


def tests(session: Session, result: PartResult) -> None:
    rows, cases, failed_programs = [], 0, 0
    for test in session.bundle["tests"]:
        status, output = session.status_of(test_command(session, test), test_environment(session, test),
                                           test["seconds"])
        good = status == 0
        cases += cases_passed(output)
        failed = sorted(set(re.findall(r"\[  FAILED  \] ([\w/.]+)(?: \(|,|$)", output, re.MULTILINE)))
        failed_programs += not good
        rows.append([test["name"], "passed" if good else f"FAILED ({status})", str(cases_passed(output)),
                     (failed or ["-"])[0] + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")])
    result.table("Tests", ["program", "result", "cases passed", "failed"], rows)
    if not rows:
        raise PartFailed("the bundle holds no tests: was it made of a build with CUDA?")
    result.figure("programs_passed", len(rows) - failed_programs)
    result.figure("cases_passed", cases)
    result.figure("failed", failed_programs)


def sanitizers(session: Session, result: PartResult, checks: tuple[str, ...]) -> None:
    """Checks our kernels only: those of libraries would take most of the time, and we cannot fix them."""
    kernel_tests = [test for test in session.bundle["tests"] if KERNEL_TEST.match(test["name"])]
    if not kernel_tests:
        raise PartFailed("the bundle holds no tests of kernels (backend.cuda...)")
    words = [*session.tool("compute-sanitizer"), "--error-exitcode", 9, "--print-limit", 5, "--report-api-errors",
             "no", "--kernel-regex", "kns=tutti", "--tool"]
    runs = [(check, test) for check in checks for test in kernel_tests]
    rows = []
    for i, (check, test) in enumerate(runs):
        share = session.seconds_left() / (len(runs) - i)
        status, output = session.status_of([*words, check, *test_command(session, test)],
                                           test_environment(session, test), share)
        summary = (re.findall(r"={9} (?:ERROR|RACECHECK) SUMMARY: (.*)", output) or ["no summary"])[-1]
        clean = status == 0 and summary.startswith("0 ")
        rows.append([f"{check} {test['name']}", "clean" if clean else f"NOT CLEAN ({status})", summary])
    result.figure("unclean", sum(row[1] != "clean" for row in rows))
    result.table("compute-sanitizer on our kernels", ["check", "result", "summary"], rows)


def read_profile(text: str) -> dict[str, list[float]]:
    """Returns launches, seconds and bytes by kernel, from ncu's table of values in base units."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise PartFailed(f"ncu gave no table: {' / '.join(lines[-3:])[-300:]}")
    totals: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in csv.DictReader(lines[begin:]):
        if not row.get("Metric Value"):
            continue
        value = float(row["Metric Value"].replace(",", ""))
        total = totals[row["Kernel Name"]]
        if row["Metric Name"].startswith("gpu__time_duration"):
            total[0] += 1
            total[1] += value * {"n": 1e-9, "u": 1e-6, "m": 1e-3, "s": 1}[row["Metric Unit"][0]]  # ns, or nsecond
        else:
            total[2] += value
    return totals


def phase_of(kernel: str) -> str:
    return next((phase for phase, pattern in PHASES if re.search(pattern, kernel, re.IGNORECASE)), "other")


def profile_step(session: Session, model: str, shape: str, batch: int) -> dict[str, list[float]]:
    """The profile of one step: the difference of four steps and three, which excludes start-up."""
    def words(steps: int) -> list:
        return session.trainer("bench", "step", *session.processor_words(), "--model", model, "--precision", "bf16",
                               "--data", f"synthetic:{4 * batch}x{shape}:10", "--batch-size", batch, "--in-flight", 0,
                               "--record-steps", "off", "--warmup-steps", 1, "--timed-steps", steps)

    session.run(words(1))  # fills the plan cache, so that the search is not in the profile
    ncu = [*session.tool("ncu"), "--clock-control", "none", "--csv", "--print-units", "base", "--print-kernel-base",
           "function", "--metrics", "gpu__time_duration.sum,dram__bytes.sum"]
    fewer, more = (read_profile(session.run([*ncu, *words(steps)])) for steps in (2, 3))
    step = {name: [b - a for a, b in zip(fewer.get(name, (0, 0, 0)), total)] for name, total in more.items()}
    return {name: total for name, total in step.items() if total[0] > 0}


def profile(session: Session, result: PartResult) -> None:
    for model, shape, batch in session.full([("resnet18", "1x28x28", 512), ("lenet", "1x28x28", 64)],
                                            [("lenet", "1x28x28", 8)]):
        step = profile_step(session, model, shape, batch)
        seconds = sum(total[1] for total in step.values())
        if seconds == 0:
            raise PartFailed("no kernel was seen in a step")
        phases: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
        for name, total in step.items():
            phases[phase_of(name)] = [a + b for a, b in zip(phases[phase_of(name)], total)]
        for title, groups in (("by phase", phases), ("by kernel", step)):
            rows = [[name[:60], number(launches), f"{spent * 1e6:,.1f}", f"{100 * spent / seconds:.1f}",
                     f"{moved / 1e6:,.1f}", f"{moved / spent / 1e12:.2f}"]
                    for name, (launches, spent, moved) in sorted(groups.items(), key=lambda one: -one[1][1])[:25]]
            result.table(f"One step of {model}, batch {batch} of {shape}, bf16, {title}: {seconds * 1e3:.3f} ms in "
                         "kernels one at a time", ["", "launches", "us", "%", "MB", "TB/s"], rows)
        result.figure(f"{model}_kernel_ms", seconds * 1e3)
