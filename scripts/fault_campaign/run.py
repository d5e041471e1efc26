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
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from attacks import attack_server
from cases import KINDS, Materials
from kills import kill_trainings
from worker import Outcome, Worker

FAULTS = ("traces", "crashes", "hangs", "lost")


def outcomes(
    name: str, materials: Materials, folder: Path, draw: random.Random
) -> Iterator[Outcome]:
    """What becomes of one case of a kind after the other."""
    if name == "kills":
        yield from kill_trainings(folder, draw)
    elif name == "server":
        yield from attack_server(materials, folder, draw)
    else:
        with closing(Worker()) as worker:
            for task, *arguments in KINDS[name](materials, folder, draw):
                yield worker.do(task, *arguments)


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*KINDS, "kills", "server"]
    parser.add_argument("--seconds", type=float, default=60.0, help="a kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these kinds")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    print(f"{'':<16}" + "".join(f"{name:>10}" for name in ("tried", "read", *FAULTS)))
    with tempfile.TemporaryDirectory() as folder:
        materials = Materials(Path(folder) / "good")
        for name in arguments.only:
            place = Path(folder) / name
            place.mkdir()
            counts: Counter[str] = Counter()
            draw = random.Random(f"{arguments.seed} {name}")
            end = time.monotonic() + arguments.seconds
            with closing(outcomes(name, materials, place, draw)) as found:
                for outcome, text in found:
                    counts[outcome] += 1
                    if outcome in FAULTS:
                        print(f"{outcome}: {text}", file=sys.stderr)
                    if time.monotonic() > end:
                        break
            row = (counts.total(), *(counts[outcome] for outcome in ("accepted", *FAULTS)))
            print(f"{name:<16}" + "".join(f"{number:>10,}" for number in row), flush=True)
            total += counts
    faults = sum(total[fault] for fault in FAULTS)
    print(f"{total.total():,} cases, {faults:,} faults; seed {arguments.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
