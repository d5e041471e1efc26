"""`captioner` and `python -m captioner`: the command line."""

import gc
import os
import signal
import sys


def start() -> int:
    """Run the command line. While it is imported, which takes .1 s, Ctrl-C ends the process.

    An exception would leave a trace: compiled libraries turn it into errors of their own.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    # Garbage collection among the many objects of modules takes a fifth of torch's import.
    gc.set_threshold(10_000)
    from captioner.cli.main import main

    return main()


def _end(*_: object) -> None:
    os.write(2, b"captioner: interrupted\n")
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    sys.exit(start())
