"""The parts that time kernels by themselves, by small programs of the bundle that print a table."""

from gpu_day.session import PartFailed, PartResult, Session

PRINTED_LINES = 50


def run_table(session: Session, result: PartResult, program: str, *words: object) -> list[str]:
    """The lines of a program's output, which are also kept."""
    path = session.root / "bin" / program
    if not path.is_file():
        raise PartFailed(f"the bundle has no {program}")
    lines = [line for line in session.run([path, *words]).splitlines() if line.strip()]
    result.table(f"Output of {program}", ["line"], [[line] for line in lines])
    result.figure("lines", len(lines))
    return lines


def norms(session: Session, result: PartResult) -> None:
    lines = run_table(session, result, "norm_speed", *session.full([], ["--check"]))
    for line in lines[:1] + [line for line in lines[1:] if "all 17" in line][:PRINTED_LINES]:
        result.line(line[:120])


def fusions(session: Session, result: PartResult) -> None:
    for line in run_table(session, result, "fusion_speed", *session.full([], ["--check"]))[:PRINTED_LINES]:
        result.line(line[:140])
