"""No signal is lost: not in callbacks whose errors Python ignores, nor while commands start."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no timer that signals")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

CALLBACKS = """
import gc, os, signal, subprocess, sys, time, weakref
from functools import partial
from captioner.cli.program import run_program

happen = lambda: None  # In every callback.

class Object:
    pass

class Finalised:
    def __del__(self):
        happen()

def finalise():
    Finalised()

def drop_a_weak_reference():
    target = Object()
    reference = weakref.ref(target, lambda _: happen())
    del target

def end_a_generator():
    def generate():
        try:
            yield
        finally:
            happen()
    next(generate())

def collect():
    collector = lambda phase, _: happen()
    gc.callbacks.append(collector)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(collector)

def fork():
    pid = os.fork() or os._exit(0)
    os.waitpid(pid, 0)

def start_a_process():
    subprocess.run(["/bin/sh", "-c", ":"], preexec_fn=int)

is_hooked = False
hook = lambda: is_hooked and happen()
os.register_at_fork(before=hook, after_in_parent=hook)
CALLBACKS = (finalise, drop_a_weak_reference, end_a_generator, collect, fork, start_a_process)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_callback_ends_the_program(number: signal.Signals) -> None:
    """Also SIGTERM where Ctrl-C is ignored, as `nohup` has it. Python still prints other errors,
    but for those that an interrupt brings about."""
    program = f"""
number = signal.Signals({number:d})
if number == signal.SIGTERM:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

def interrupt():
    global happen
    happen = lambda: None
    signal.raise_signal(number)

def main(callback):
    global happen, is_hooked
    happen, is_hooked = interrupt, True
    callback()
    time.sleep(5)
    return 3

for callback in CALLBACKS:
    print(callback.__name__, run_program(partial(main, callback), "name"))
handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
print(sys.unraisablehook is sys.__unraisablehook__, *map(int, handlers[1:]))
happen = lambda: 1 / 0
run_program(finalise)

def main_with_an_object():
    held = Finalised()
    signal.raise_signal(signal.SIGTERM)

print(run_program(main_with_an_object, "name"))
"""
    command = [sys.executable, "-c", CALLBACKS + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    names = ("finalise", "drop_a_weak_reference", "end_a_generator", "collect", "fork")
    expected = [f"{name} 130" for name in (*names, "start_a_process")]
    assert done.stdout.splitlines() == [*expected, "True 0 0", "130"]
    interrupts, _, rest = done.stderr.partition("Exception ignored in: <function Finalised.__del__")
    assert interrupts == 6 * "name: interrupted\n"
    assert rest.endswith("ZeroDivisionError: division by zero\nname: interrupted\n")


START = """
import signal, sys
from captioner.__main__ import start

class Finder:
    def find_spec(name, *_):
        if name == moment:
            signal.raise_signal(signal.SIGINT)

moment = sys.argv.pop(1)
sys.meta_path.insert(0, Finder)
sys.exit(start())
"""


@pytest.mark.parametrize(
    "module", ["captioner.cli.main", "argparse", "captioner.cli.caption", "pydantic.types", "numpy"]
)
def test_an_interrupt_while_a_module_is_imported(module: str) -> None:
    command = [sys.executable, "-c", START, module, "caption", "--demo"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "captioner: interrupted\n")
