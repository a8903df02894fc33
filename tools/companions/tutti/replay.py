"""Computes steps of a run again with the trainer, and compares the results with the run's records and checkpoints."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from tutti import files, launch, program, stored_options
from tutti.metrics import MetricsFile
from tutti.program import BAD_INPUT, CANNOT_READ, NO_CHECKPOINT, Failure, describe

STOPPED = 75
# The results of a step, in the order in which they are computed. Times and counts of repeated steps are not compared.
RESULTS = {"digest": ("gradients", "weights", "optimizer", "statistics", "averages"),
           "step": ("train_loss", "train_acc", "lr"),
           "epoch": ("epoch", "digest", "train_loss", "train_acc", "test_loss", "test_acc", "lr")}
# What the run record of a launch says about its results. The rest is about machines and times.
CONDITIONS = ("model", "parameters", "train_samples", "test_samples", "batch_size", "parts", "precision", "exchange",
              "wire", "optimizer", "lr", "warmup_epochs", "momentum", "weight_decay", "seed")
MOST_RANKS = 1 << 20


def is_cpu(run: dict) -> bool:
    """Of the run record. All CPUs compute the same bits."""
    return str(run.get("device")).startswith("cpu")


class Mismatch(Exception):
    """What the run claims and the replay does not confirm."""


@dataclasses.dataclass
class Launch:
    begin: int  # steps done before
    record: dict


@dataclasses.dataclass
class Claims:
    """What a run has recorded, without the steps that a later launch has computed again."""
    folder: pathlib.Path
    records: list[dict] = dataclasses.field(default_factory=list)  # all, with their lines
    launches: list[Launch] = dataclasses.field(default_factory=list)
    results: dict[tuple[int, str], dict] = dataclasses.field(default_factory=dict)  # by step and event
    checkpoints: dict[int, dict] = dataclasses.field(default_factory=dict)  # manifests by step
    last_step: int = 0  # of all records

    @property
    def points(self) -> list[int]:
        """The steps that begin or end an interval: those with a state, and the last one with a result."""
        first = self.launches[0].begin
        last = max([first, *self.checkpoints, *(step for step, _ in self.results)])
        return sorted({first, last, *(step for step in self.checkpoints if step > first)})

    def path_of(self, step: int) -> pathlib.Path:
        return self.folder / f"checkpoints/step-{step:08}.h5"

    def between(self, begin: int, end: int) -> dict[tuple[int, str], dict]:
        """The results of these steps that a replay from `begin` can compare. The first means of --log-every may
        include earlier steps."""
        found = {key: self.results[key] for key in sorted(self.results) if begin < key[0] <= end}
        means = [key for key in found if key[1] == "step"]
        if means and (begin, "step") not in self.results and all(begin != one.begin for one in self.launches):
            del found[means[0]]
        return found


@dataclasses.dataclass(frozen=True)
class Replayed:
    held: int  # the last step with a confirmed result; where the replay began if there is none
    records: int  # that are confirmed
    unconfirmed: int  # records of these steps that leave out results
    has_state: bool  # the checkpoint of the last step is confirmed, too

    def __str__(self):
        return program.plural(self.records, "record") + (" and its checkpoint" if self.has_state else "") + " confirmed"


def read(folder: str) -> Claims:
    file = MetricsFile(folder)
    claims = Claims(pathlib.Path(folder).resolve(), file.read())
    for record in claims.records:
        step, event = record.get("step", 0), record["event"]
        claims.last_step = max(claims.last_step, step)
        if event == "run":
            check_launch(record, file)
            claims.launches = [one for one in claims.launches if one.begin < step] + [Launch(step, record)]
            claims.results = {key: one for key, one in claims.results.items() if key[0] <= step}
        elif event in RESULTS:
            claims.results[step, event] = record
    if not claims.launches:
        raise Failure(BAD_INPUT, f"'{folder}/metrics.jsonl' has no run record")
    claims.checkpoints = {step: manifest_in(path) for step, path in manifests_of(claims.folder).items()}
    return claims


def check_launch(record: dict, file: MetricsFile) -> None:
    """Refuses a run record without the fields that a replay needs."""
    ranks = record.get("ranks")
    if type(ranks) is not int or not 1 <= ranks <= MOST_RANKS or \
            not all(isinstance(record.get(name, ""), str) for name in ("configuration", "exchange")):
        raise file.refusal()


def is_whole(event: str, claim: dict, found: dict | None) -> bool:
    """Whether a record has all results that its replay found. Only those of a test may be missing: a replay may test
    where the run did not."""
    return found is not None and all(claim.get(name) is not None or found.get(name) is None or name.startswith("test_")
                                     for name in RESULTS[event])


def without_results(count: int) -> Failure:
    return Failure(BAD_INPUT, f"{program.plural(count, 'record')} not confirmed: results are missing in them, or an "
                              "early version wrote them without the options of the run")


def manifests_of(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """The manifests of a run's checkpoints, by step."""
    return {int(path.stem[5:]): path for path in (folder / "checkpoints").glob("step-*.json")
            if re.fullmatch(r"step-[0-9]{8,15}", path.stem)}


def manifest_in(path: pathlib.Path) -> dict:
    try:
        manifest = json.loads(text_of(path))
        if isinstance(manifest, dict):
            return manifest
    except (ValueError, RecursionError):
        pass
    raise Failure(NO_CHECKPOINT, f"'{path}' is damaged")


def text_of(path: pathlib.Path) -> str:
    try:
        return files.read(path)[0].decode("utf-8", "replace")
    except OSError as error:
        raise Failure(CANNOT_READ, f"cannot read '{path}': {describe(error)}") from error


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the --out folder of the training")
    parser.add_argument("--data", help="where the data are here [as in the run]")
    parser.add_argument("--test-data", help="where the test set is here, if separate [as in the run]")
    parser.add_argument("--plan-cache", metavar="FILE", help="the --plan-cache file of the run; it is copied")
    parser.add_argument("--ranks", type=int, help="number of ranks [that of the launcher, or 1]")
    parser.add_argument("--launcher", metavar="WORDS",
                        help="what starts ranks, mpirun or srun with its options in quotes [what started this command; "
                             "srun or mpirun in a Slurm job; else mpirun]")


class Replayer:
    """Computes steps of a run in folders of its own."""

    def __init__(self, claims: Claims, options: argparse.Namespace, words: list[str]):
        self.claims = claims
        record = claims.launches[-1].record
        as_run = record["ranks"] if record.get("exchange") != "exact" else None
        self.launcher = launch.find_launcher(options.launcher, options.ranks or as_run or 1, words)
        if options.ranks is not None and options.ranks < 1:
            raise Failure(program.USAGE, f"--ranks {options.ranks}: must be 1 or more")
        self.ranks = options.ranks or as_run or self.launcher.ranks
        if as_run and self.ranks != as_run:
            raise Failure(BAD_INPUT, f"with --exchange {record['exchange']} the bits depend on the number of ranks: "
                                     f"give --ranks {as_run}; runs with --parts can be replayed on any number")
        self.data = {"data": options.data, "test-data": options.test_data}
        self.plan_cache = options.plan_cache
        self.has_note = False

    def temporary_folder(self):
        return tempfile.TemporaryDirectory(prefix="tutti-replay-", dir=None if self.launcher.is_local else ".")

    def replay(self, begin: int, end: int, out: pathlib.Path, limit: float | None = None) -> Replayed:
        """Computes the steps after `begin`, which has a state, up to `end`, or fewer within `limit` seconds. Raises a
        Mismatch."""
        started = time.monotonic()
        self._link_checkpoint(begin, out)
        launches = [one for one in self.claims.launches if one.begin < end]
        ends = [one.begin for one in launches[1:]] + [end]
        for one, until in zip(launches, ends):
            left = None if limit is None else limit - (time.monotonic() - started)
            if until > begin and not self._train(one, begin, until, out, left):
                break
        return self._compare(begin, end, out)

    def _link_checkpoint(self, step: int, out: pathlib.Path) -> None:
        (out / "checkpoints").mkdir(parents=True)
        if step in self.claims.checkpoints:
            for file in (self.claims.path_of(step), self.claims.path_of(step).with_suffix(".json")):
                (out / "checkpoints" / file.name).symlink_to(file)

    def _train(self, one: Launch, begin: int, until: int, out: pathlib.Path, limit: float | None) -> bool:
        """False if the time did not suffice."""
        (out / "replay.toml").write_text(self._configuration(one, out), encoding="utf-8")
        words = ["--config", str(out / "replay.toml"), "--out", str(out), "--resume", "--steps", str(until), "--quiet",
                 "--checkpoint-every", "end", "--keep-checkpoints", "2", "--progress", "never", "--patience", "0",
                 "--stop-at-accuracy", "0"]
        words += [f"--{name}={value}" for name, value in self.data.items() if value]
        if not any(result.get("test_acc") is not None for result in self.claims.between(begin, until).values()):
            words += ["--test-every", "0"]
        if limit is not None:
            words += ["--time-limit", str(max(1, round(limit)))]
        if self.plan_cache:
            words += ["--plan-cache", self._copied_plan_cache(out)]
        process = self.launcher.start(self.ranks, [program.trainer(), *words])
        try:
            errors = process.communicate()[1]
        except BaseException:
            launch.stop(process)
            raise
        (out / "replay.toml").unlink()
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        if status not in (program.DONE, STOPPED):
            reason = launch.reason_in(errors, out) or f"the launcher ended with status {status}"
            raise Failure(status if status > program.NO else BAD_INPUT,
                          f"steps {begin} to {until} cannot be replayed: {reason}")
        reached = max(manifests_of(out), default=begin)
        if status == STOPPED and limit is None:
            raise Failure(STOPPED, f"steps {begin} to {until} are not replayed: the trainer was stopped after step "
                                   f"{reached}; start the replay again")
        if status == program.DONE and reached < until:
            raise Mismatch(f"step {reached + 1}: the run claims steps up to {until}, and with the options that it "
                           f"recorded it ends after step {reached}")
        self._check_conditions(one.record, read(str(out)).launches[-1].record)
        return status == program.DONE

    def _copied_plan_cache(self, out: pathlib.Path) -> str:
        """Replays must not change the file of the run."""
        try:
            return shutil.copyfile(self.plan_cache, str(out / "plan-cache"))
        except OSError as error:
            raise Failure(CANNOT_READ, f"--plan-cache {self.plan_cache}: {describe(error)}") from error

    def _configuration(self, one: Launch, out: pathlib.Path) -> str:
        """The options of a launch, as far as they are taken from the run. Early versions recorded them only in its
        checkpoints and, of the last launch, in config.toml."""
        if "configuration" in one.record:
            return stored_options.for_replay(one.record["configuration"],
                                             f"{self.claims.folder}/metrics.jsonl, line {one.record['line']}")
        if one is self.claims.launches[-1]:
            path = self.claims.folder / "config.toml"
            return stored_options.for_replay(text_of(path), str(path))
        end = self.claims.launches[self.claims.launches.index(one) + 1].begin
        for step in sorted(self.claims.checkpoints):
            if one.begin < step <= end:
                self._ask("inspect", self.claims.path_of(step), "--json", out / "replay.toml")
                text = json.loads(text_of(out / "replay.toml"))["run"]["configuration"]
                return stored_options.for_replay(text, str(self.claims.path_of(step)))
        raise Failure(BAD_INPUT, f"steps {one.begin} to {end} cannot be replayed: an early version trained them, and "
                                 "no checkpoint with its options is left")

    def _ask(self, *words) -> subprocess.CompletedProcess:
        """Runs a command of the program. Its status 1 is an answer, and higher ones are failures."""
        answer = launch.ask(*words)
        if answer.returncode < 0:
            raise Failure(128 - answer.returncode, f"trainer {words[0]} was killed by signal {-answer.returncode}; the "
                                                   f"checkpoint '{words[1]}' may be forged")
        if answer.returncode not in (program.DONE, program.NO):
            raise Failure(answer.returncode, answer.stderr.decode("utf-8", "replace").strip().partition(": ")[2])
        return answer

    def _compare(self, begin: int, end: int, out: pathlib.Path) -> Replayed:
        replayed = read(str(out))
        reached = max(replayed.checkpoints, default=begin)
        has_state = reached == end and end in self.claims.checkpoints
        of_state = self._difference_of_states(end, replayed) if has_state else ""
        held, confirmed, unconfirmed = begin, 0, 0
        for (step, event), claim in self.claims.between(begin, reached).items():
            found = replayed.results.get((step, event))
            difference = self._difference_of_results(event, claim, found)
            if difference:
                raise Mismatch("\n".join(filter(None, (f"step {step}: {difference}", of_state))))
            if is_whole(event, claim, found):
                held, confirmed = step, confirmed + 1
            else:
                unconfirmed += 1
        if of_state:
            raise Mismatch(f"step {end}: {of_state}")
        return Replayed(end if has_state else held, confirmed, unconfirmed, has_state)

    def _check_conditions(self, run: dict, here: dict) -> None:
        """Compares the run record of a launch with that of its replay. Early versions recorded less."""
        if run.get("data_digest") != here["data_digest"]:
            raise Failure(BAD_INPUT, f"the data have digest {here['data_digest']}, and those of the run "
                                     f"{run.get('data_digest')}: give the data of the run with --data")
        then, now = (f"tutti {one.get('version')} on {'CPUs' if is_cpu(one) else one.get('device')}"
                     for one in (run, here))
        if then != now and not self.has_note:
            program.print_note(f"the run used {then}, and this is {now}: their bits may differ")
            self.has_note = True
        # Earlier versions had only 64-bit sums for `exact`, and no name for them.
        renamed = {"wire": "int64"} if (run.get("exchange"), run.get("wire")) == ("exact", "fp32") else {}
        for name in CONDITIONS if self.data["data"] else ("data", *CONDITIONS):
            if run.get(name) is not None and renamed.get(name, run[name]) != here.get(name):
                raise Mismatch(f"metrics.jsonl: line {run['line']}: {name} {json.dumps(run[name])} in the run record, "
                               f"{json.dumps(here.get(name))} in the replay")

    def _difference_of_results(self, event: str, claim: dict, found: dict | None) -> str:
        if found is None and any("configuration" not in one.record for one in self.claims.launches):
            return ""  # the options of a launch of an early version are unknown, such as --log-every
        for name in RESULTS[event]:
            value = None if found is None else found.get(name)
            if claim.get(name) is not None and claim[name] != value:
                return f"{'weights' if name == 'digest' else name} {json.dumps(claim[name])} in the {event} record, " \
                       f"{json.dumps(value)} in the replay"
        return ""

    def _difference_of_states(self, step: int, replayed: Claims) -> str:
        diff = self._ask("diff", self.claims.path_of(step), replayed.path_of(step))
        found = diff.stdout.decode("utf-8", "replace")
        if diff.returncode == program.DONE and not re.search(r"^  (--|the networks)", found, re.MULTILINE):
            return ""
        return f"the checkpoint of step {step} (A) and its replay (B) differ:\n{found.rstrip()}"
