"""Damage everything that comes from outside, and count what the package makes of it.

Damaged photos, configs, data files and model folders are each to be refused in one sentence, or
read; training that is killed is to end with the same weights; the server is to answer good requests
beside hostile ones. Faults are counted:

traces    another exception than the one sentence
crashes   the process ended
hangs     no answer within 20 seconds
lost      a good photo was not captioned, damaged weights were accepted, weights differ after a
          kill, a good request was not answered

  python scripts/fault_campaign/run.py --seconds 60 --seed 0
  python scripts/fault_campaign/run.py --only photos server

The cases of a kind follow from the seed; how many are tried, from the time. The exit code is 1 if
there was a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks import attack_server
from cases import KINDS, Case, Materials
from kills import kill_trainings
from tally import FAULTS, Tally

PATIENCE = 20.0
"""Seconds for the answer to a case."""

BEGINNING = 120.0
"""Seconds for a worker to begin, which imports the package."""


class Worker:
    """A process that does cases, replaced when it crashed or hung."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def do(self, case: Case) -> tuple[str, str]:
        """The outcome of a case, and what is known about it."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._ask(Case("config", ["absent"]), BEGINNING)
        return self._ask(case, PATIENCE)

    def _ask(self, case: Case, patience: float) -> tuple[str, str]:
        process = self._process
        if process is None:
            return "hangs", "a worker did not begin"
        is_late = threading.Event()
        assert process.stdin is not None
        assert process.stdout is not None

        def kill() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(patience, kill)
        timer.start()
        try:
            process.stdin.write(json.dumps({"kind": case.kind, "arguments": case.arguments}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self.close()
            return ("hangs" if is_late.is_set() else "crashes"), str(case)
        finally:
            timer.cancel()
            timer.join()
        outcome = {"trace": "traces"}.get(answer["outcome"], answer["outcome"])
        return outcome, f"{case}\n{answer['text']}"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def try_cases(cases: Iterator[Case], seconds: float) -> Tally:
    """Do cases until the time is over."""
    tally, worker, end = Tally(), Worker(), time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            tally.count(*worker.do(next(cases)))
    finally:
        worker.close()
    return tally


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    others: dict[str, Callable[[Path, random.Random, float, Tally], None]] = {
        "kills": kill_trainings,
        "server": attack_server,
    }
    names = [*KINDS, *others]
    parser.add_argument("--seconds", type=float, default=60.0, help="a kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these kinds")
    arguments = parser.parse_args()
    total, faults = 0, 0
    print(f"{'':<16}" + "".join(f"{name:>10}" for name in ("tried", "read", *FAULTS)))
    with tempfile.TemporaryDirectory() as folder:
        materials = Materials(Path(folder) / "good")
        for name in arguments.only:
            draw = random.Random(f"{arguments.seed} {name}")
            place = Path(folder) / name
            place.mkdir()
            if name in KINDS:
                tally = try_cases(KINDS[name](materials, place, draw), arguments.seconds)
            else:
                tally = Tally()
                others[name](place, draw, arguments.seconds, tally)
            row = (tally.tried, tally.accepted, *tally.faults.values())
            print(f"{name:<16}" + "".join(f"{number:>10,}" for number in row), flush=True)
            for sentence in tally.kept:
                print(sentence, file=sys.stderr)
            total += tally.tried
            faults += sum(tally.faults.values())
    print(f"{total:,} cases, {faults:,} faults; seed {arguments.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
