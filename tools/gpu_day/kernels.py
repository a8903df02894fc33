"""The parts that time kernels by themselves, by small programs of the bundle that print a table."""

import re

from gpu_day.session import PartFailed, PartResult, Session

PRINTED_LINES = 50


def run_table(session: Session, result: PartResult, program: str, command: list, wanted: str = "") -> list[str]:
    """The first line of a program's output, and those that match, which are also kept."""
    lines = [line for line in session.run(command).splitlines() if line.strip()]
    lines = lines[:1] + [line for line in lines[1:] if re.search(wanted, line)]
    if not lines:
        raise PartFailed(f"{program} printed nothing")
    result.table(f"Output of {program}", ["line"], [[line] for line in lines])
    result.figure("lines", len(lines))
    return lines


def norms(session: Session, result: PartResult) -> None:
    path = session.root / "bin/norm_speed"
    if not path.is_file():
        raise PartFailed("the bundle has no norm_speed")
    lines = run_table(session, result, path.name, [path, *session.full([], ["--check"])], "all 17|in use|differ")
    for line in lines[:1] + [line for line in lines[1:] if "all 17" in line][:PRINTED_LINES]:
        result.line(line[:120])


def fusions(session: Session, result: PartResult) -> None:
    for line in run_table(session, result, "fusion_speed", session.tool("fusion_speed"))[:PRINTED_LINES]:
        result.line(line[:140])
