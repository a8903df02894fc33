"""Starts the trainer on ranks for a companion: with the launcher of the companion, or else with srun or mpirun."""

import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

from tutti import program
from tutti.program import USAGE, Failure

LAUNCHER_NAME = re.compile(r"(mpirun|mpiexec|orterun|prterun)")
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
# Variables that launchers set for a rank. A launcher that inherits them would act as a rank.
OF_A_RANK = re.compile(r"(OMPI_(COMM_WORLD|APP_CTX|UNIVERSE|FIRST_RANKS|FILE_LOCATION|COMMAND|ARGV|NUM_APP|MCA_orte_|"
                       r"MCA_ess|MCA_pmix|MCA_initial_wdir|MCA_mpi_oversubscribe)|PMIX_|PMI_|PMI2_|PRTE_|HYD|MPIR_|"
                       r"MPI_LOCAL|SLURM_(STEP|PROCID|LOCALID|NODEID|GTIDS|TASK_PID|CPU_BIND|DISTRIBUTION|NTASKS$|"
                       r"NPROCS$|MPI_TYPE|LAUNCH|SRUN|UMASK|PRIO))")
SECONDS_TO_END = 10


class Launcher:
    """Starts programs on 1 to `ranks` ranks of one launch."""

    def __init__(self, words, ranks, environment, is_local=True, cores=None, is_limited=False):
        self.words = words  # none: no launcher, for one rank
        self.ranks = ranks
        self.is_limited = is_limited  # to `ranks` ranks
        self.is_local = is_local  # all ranks are on this host
        # In a Slurm job, the step of a parent launcher occupies all resources. srun must share them, also for mpirun.
        self._environment = {**environment, "SLURM_OVERLAP": "1"}
        self._cores = sorted(cores or os.sched_getaffinity(0))

    def start(self, ranks, words, threads=1):
        """Starts a process with stderr as a pipe. On one host, each rank has the same number of cores, also with fewer
        ranks than in the launch."""
        cores = self._cores
        if self.is_local and ranks < self.ranks:
            cores = cores[:ranks * max(threads, len(cores) // self.ranks)]
        try:
            return subprocess.Popen([*self._launcher_words(ranks), *words], env=self._environment,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    start_new_session=True, preexec_fn=lambda: _prepare(cores))
        except OSError as error:
            raise Failure(USAGE, f"cannot start {self.words[0] if self.words else words[0]}: "
                                 f"{program.describe(error)}; --launcher names what starts ranks here") from error

    def _launcher_words(self, ranks):
        if not self.words:
            return []
        name = pathlib.PurePath(self.words[0]).name
        if name.startswith("srun"):
            return [*self.words, f"--ntasks={ranks}", *_srun_nodes(ranks, self._environment)]
        unbound = []
        # Open MPI would bind each of one or two ranks to a single core.
        if ranks < self.ranks and not re.search(r"--?bind-to|--?map-by|--?rankfile|--?cpu", " ".join(self.words)) and \
                _is_open_mpi(self.words[0], self._environment):
            unbound = ["--bind-to", "none"]
        return [self.words[0], "-n", str(ranks), *unbound, *self.words[1:]]


def stop(process):
    """Ends a launcher and its ranks."""
    process.terminate()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the remaining processes
    except ProcessLookupError:
        pass
    process.wait()


def reason_in(errors, folder=None):
    """The reason why a training failed: its own message, or else the launcher's."""
    if folder:
        try:
            return json.loads((folder / "exit.json").read_text(encoding="utf-8"))["reason"]
        except (OSError, ValueError, KeyError):
            pass
    text = errors.decode("utf-8", "replace").replace("\r", "\n")
    name = re.escape(pathlib.PurePath(program.trainer()).name)
    for pattern in (rf"^{name}: (.*)", r"^.*(exited on signal .*?)\.?$", r"^\s*([^-\s\[].*)"):
        found = re.search(pattern, text, re.MULTILINE)
        if found:
            return found[1].strip()
    return ""


def ask(*words):
    """Runs a command of the program to its end, without a launcher."""
    return subprocess.run([program.trainer(), *map(str, words)], env=environment_without_ranks(),
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)


def find_launcher(requested, most_ranks, words):
    """Of `requested` ("mpirun --oversubscribe"), of TUTTI_LAUNCHER, of the launcher above this process, which was given
    `words` for it, of a Slurm allocation, or mpirun. `most_ranks`: where no launcher gives their number."""
    ranks = _ranks_of_launch()
    if requested:
        try:
            chosen = shlex.split(requested)
        except ValueError as error:
            raise Failure(USAGE, f"--launcher {requested}: {error}") from error
        return Launcher(chosen, ranks or most_ranks, environment_without_ranks(), is_local=False,
                        is_limited=ranks > 0)
    above = _launcher_above(words) if ranks else None
    if above:
        return Launcher(above.words, ranks, above.environment, above.is_local, above.cores, is_limited=True)
    if "SLURM_JOB_ID" in os.environ:
        return _slurm_launcher(ranks or _ranks_of_allocation())
    if not ranks and most_ranks <= 1:
        return Launcher([], 1, environment_without_ranks())
    is_local = not any(name in os.environ for name in ("PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE"))
    environment = environment_without_ranks()
    mpirun = _mpirun(_is_mpich(environment), environment)
    return Launcher([mpirun], ranks or most_ranks, environment, is_local, is_limited=ranks > 0)


def _ranks_of_launch():
    for name in SIZES:
        value = os.environ.get(name, "")
        # Slurm's interactive shells are steps with one task.
        if value.isdigit() and (int(value) > 1 or not name.startswith("SLURM")):
            return int(value)
    return 0


def _ranks_of_allocation():
    fit = int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) * \
        int(os.environ.get("SLURM_NTASKS_PER_NODE", os.environ.get("SLURM_NTASKS", 1)))
    return min(fit, int(os.environ.get("SLURM_NTASKS", fit)))


def environment_without_ranks():
    """The environment of this process without the launcher's variables for this rank."""
    return {name: value for name, value in os.environ.items() if not OF_A_RANK.match(name)}


def _slurm_launcher(ranks):
    by = os.environ.get("TUTTI_LAUNCHER", "")
    if by not in ("", "srun", "mpirun"):
        raise Failure(USAGE, f"TUTTI_LAUNCHER is srun or mpirun, not '{by}'")
    environment = environment_without_ranks()
    is_mpich = _is_mpich(environment)
    pmi = "pmi2" if is_mpich else "pmix"
    if by != "mpirun" and (by == "srun" or re.search(rf"\b{pmi}\b", _output_of(["srun", "--mpi=list"], environment))):
        words = ["srun", f"--mpi={pmi}", f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK', 1)}",
                 "--kill-on-bad-exit=1"]
    else:
        words = [_mpirun(is_mpich, environment)]
    return Launcher(words, ranks, environment, is_local=False, is_limited=True)


def _srun_nodes(ranks, environment):
    """Options of srun that fill one node after the other."""
    nodes = int(environment.get("SLURM_JOB_NUM_NODES", 1))
    per_node = environment.get("SLURM_NTASKS_PER_NODE") or -(-_ranks_of_allocation() // nodes)
    return [f"--nodes={min(nodes, -(-ranks // max(1, int(per_node))))}"]


def _is_mpich(environment):
    """Whether MPICH is the trainer's MPI library."""
    return "MPICH" in _output_of([program.trainer(), "--version"], environment)


def _mpirun(is_mpich, environment):
    """The mpirun of the trainer's MPI library. If two are installed, the other one may have the plain name."""
    for name in ("mpirun", "mpirun.mpich" if is_mpich else "mpirun.openmpi", "mpiexec.hydra"):
        if shutil.which(name) and _is_open_mpi(name, environment) != is_mpich:
            return name
    return "mpirun"


def _is_open_mpi(launcher, environment):
    return bool(re.search(r"Open MPI|OpenRTE|PRRTE", _output_of([launcher, "--version"], environment)))


def _output_of(words, environment):
    if not shutil.which(words[0]):
        return ""
    return subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False).stdout.decode("utf-8", "replace")


class _LauncherAbove:
    """The launcher that has started this process, found in /proc. It is started again in the same way."""

    def __init__(self, process, call, words):
        at = len(call) - len(words) - 2  # behind the launcher's options: the program, and the name of the command
        self.words = _without_count(call[:at])
        text = (process / "environ").read_bytes().decode("utf-8", "surrogateescape")
        self.environment = dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
        self.cores = os.sched_getaffinity(int(process.name))
        self.is_local = not re.search(r"-(H|f)\b|host|machinefile", " ".join(self.words)) and not any(
            name in self.environment for name in ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE"))


def _launcher_above(words):
    """None if it runs on another host, or calls the command by other words."""
    pid = os.getppid()
    while pid > 1:
        process = pathlib.Path("/proc") / str(pid)
        try:
            call = (process / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
            pid = int((process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if call and LAUNCHER_NAME.match(pathlib.PurePath(call[0]).name) and len(call) > len(words) + 2 and \
                    call[len(call) - len(words):] == list(words):
                return _LauncherAbove(process, call, words)
        except OSError:
            return None
    return None


def _without_count(words):
    rest = []
    skips = False
    for word in words:
        if not skips and word not in ("-n", "-np", "--n", "--np", "-c"):
            rest.append(word)
        skips = not skips and word in ("-n", "-np", "--n", "--np", "-c")
    return rest


def _prepare(cores):
    os.sched_setaffinity(0, cores)
    # If the companion is killed, its children are, too.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
