"""The parts that run the bundle's test programs, in shards or several at a time."""

import dataclasses
import os
import re
from concurrent import futures

from gpu_day.processor import LIMITS, limited
from gpu_day.session import PartFailed, PartResult, Session

SHARDS = 14  # on 16 cores
RANKED_AT_ONCE = 4  # test programs that start several ranks
ALONE = re.compile("late_ranks")  # tests with deadlines, which others would disturb


@dataclasses.dataclass
class Outcome:
    passed: int
    failed: list[str]  # names of tests
    statuses: list[int | str]

    @property
    def good(self) -> bool:
        return all(status == 0 for status in self.statuses)

    def row(self, name: str) -> list[str]:
        bad = sorted({str(status) for status in self.statuses if status != 0})
        more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
        return [name, "passed" if self.good else f"FAILED ({', '.join(bad)})", str(self.passed),
                (self.failed or ["-"])[0] + more]


def outcome_of(results: list[tuple[int | str, str]]) -> Outcome:
    text = "\n".join(output for _, output in results)
    failed = set(re.findall(r"\[  FAILED  \] ([\w/.]+)(?: \(|,|$)", text, re.MULTILINE))
    passed = sum(len(re.findall(r"\[       OK \]", output)) for _, output in results)
    return Outcome(passed, sorted(failed), [status for status, _ in results])


def environment_of(session: Session, test: dict) -> dict[str, str]:
    """The stand-in's settings are left out on a GPU: some shorten deadlines."""
    given = (word.replace("{bundle}", str(session.root)).partition("=") for word in test["environment"])
    return session.environment | {name: value for name, _, value in given
                                  if session.rehearses or not name.startswith("TUTTI_STANDIN_")}


def command_of(session: Session, test: dict) -> list[str]:
    return [word.replace("{bundle}", str(session.root)) for word in test["command"]]


def in_shards(session: Session, program: str, shards: int, environment: dict[str, str],
              pool: futures.Executor) -> list[futures.Future]:
    def run(index: int) -> tuple[int | str, str]:
        settings = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(index), "GTEST_COLOR": "no"}
        return session.status_of([program], environment | settings)

    return [pool.submit(run, index) for index in range(shards)]


def report(result: PartResult, outcomes: dict[str, Outcome]) -> None:
    if not outcomes:
        raise PartFailed("the bundle holds no such tests: was it made of a build with CUDA and tests?")
    result.table("Tests", ["program", "result", "cases passed", "failed"],
                 [outcome.row(name) for name, outcome in outcomes.items()])
    result.figure("cases_passed", sum(outcome.passed for outcome in outcomes.values()))
    result.figure("failed", sum(not outcome.good for outcome in outcomes.values()))
    for name, outcome in outcomes.items():
        if not outcome.good:
            result.line(f"{', '.join(outcome.row(name)[:3])}: {', '.join(outcome.failed[:12]) or 'no test is named'}")


def tests_of_backend(session: Session, result: PartResult) -> None:
    """A program of GoogleTest runs once with all its tests, whatever CTest selects of them; others run as in CTest."""
    programs: dict[str, dict[str, str]] = {}
    others, outcomes = [], {}
    for test in session.bundle["tests"]:
        if not test["name"].startswith("backend."):
            continue
        program, *words = command_of(session, test)
        if words and words[0].startswith("--gtest_filter="):
            programs.setdefault(program, {}).update(environment_of(session, test))
        else:
            others.append(test)
    with futures.ThreadPoolExecutor(2 * SHARDS) as pool:
        single = [(test["name"], pool.submit(session.status_of, command_of(session, test),
                                             environment_of(session, test))) for test in others]
        started = {os.path.basename(program): in_shards(session, program, session.full(SHARDS, 2), environment, pool)
                   for program, environment in programs.items()}
        for name, shards in started.items():
            outcomes[name] = outcome_of([shard.result() for shard in shards])
        outcomes |= {name: outcome_of([one.result()]) for name, one in single}
    report(result, outcomes)


def tests_of_comm(session: Session, result: PartResult) -> None:
    chosen = [test for test in session.bundle["tests"] if not test["name"].startswith("backend.")]
    outcomes = {}

    def run(test: dict) -> tuple[int | str, str]:
        return session.status_of(command_of(session, test), environment_of(session, test), test["seconds"])

    for tests, at_once in (([test for test in chosen if not ALONE.search(test["name"])],
                            session.full(RANKED_AT_ONCE, 1)),
                           ([test for test in chosen if ALONE.search(test["name"])], 1)):
        with futures.ThreadPoolExecutor(at_once) as pool:
            for test, one in zip(tests, pool.map(run, tests)):
                outcomes[test["name"]] = outcome_of([one])
    report(result, outcomes)


def tests_of_processor(session: Session, result: PartResult) -> None:
    """All programs under all limits share the cores, the longest first."""
    outcomes = {}
    with futures.ThreadPoolExecutor(session.full(os.cpu_count() or 1, 2)) as pool:
        started = {}
        for program in session.bundle["processor_tests"]:
            for limit in session.full(LIMITS, LIMITS[:1]):
                environment = session.environment | {"OMP_WAIT_POLICY": "passive"} | limited(limit)
                started[f"{program}, {limit or 'all'}"] = in_shards(
                    session, str(session.root / "bin" / program), session.full(8, 2), environment, pool)
        for name, shards in started.items():
            outcomes[name] = outcome_of([shard.result() for shard in shards])
    report(result, outcomes)
