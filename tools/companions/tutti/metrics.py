"""RUN/metrics.jsonl, record by record. src/app/metrics_log.hpp describes its records."""

import json
import os
import struct

from tutti import files
from tutti.program import BAD_INPUT, CANNOT_READ, Failure, describe

MOST_STEPS = 2**53
# What happens if a field of a record is missing, or is not of its kind.
ODD_RECORD = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


class MetricsFile:
    """Reads the records of a run, and later those that were added."""

    def __init__(self, run: str, may_come_later: bool = False):
        self.path = os.path.join(run, "metrics.jsonl")
        self.damaged = 0  # lines that are not records, for example after a kill or on a full disk
        self._may_come_later = may_come_later
        self._position = 0
        self._line = 0
        self._records = 0

    def read(self) -> list:
        """Returns the records since the last call, each with its line number as "line"."""
        try:
            text, modified = files.read(self.path, files.MOST_OF_RECORDS, self._position)
        except OSError as error:
            if self._may_come_later and isinstance(error, FileNotFoundError):
                return []
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise Failure(BAD_INPUT, f"'{os.path.dirname(self.path)}' holds no metrics.jsonl: give the folder that "
                              "a training had as --out") from error
            raise Failure(CANNOT_READ, f"cannot read '{self.path}': {describe(error)}") from error
        whole = text[:text.rfind(b"\n") + 1]  # the run may be writing the last line now
        self._position += len(whole)
        records = [record for line in whole.split(b"\n")[:-1] if (record := self._record(line, modified))]
        self._records += len(records)
        if not self._records and not self._may_come_later:
            raise Failure(BAD_INPUT, f"'{self.path}' holds no records")
        return records

    def refusal(self) -> Failure:
        """The error for a record that lacks a field, or has one of another kind."""
        return Failure(BAD_INPUT, f"'{self.path}' holds records that are not the trainer's")

    def _record(self, line: bytes, modified: float):
        self._line += 1
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not is_record(record):
            self.damaged += 1
            return None
        # Records of earlier versions have no time.
        return {"unix_time": modified, **record, "line": self._line}


def is_record(record: object) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        return False
    step = record.get("step", 0 if record["event"] == "run" else None)
    return isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MOST_STEPS
