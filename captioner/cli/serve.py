"""`captioner serve`."""

from __future__ import annotations

import argparse
import math
from typing import Any

from captioner.cli.shared_options import Commands, add_device, add_parser
from captioner.errors import UserError
from captioner.models import DEFAULT_TRANSLATOR

DESCRIPTION = """\
Opens a page on this machine: drop photos, read their captions, point at a word and see where the
model looked, or write a sentence and see the same of its translation. Programs find all of it there
as well; /api/openapi.json describes it.

  captioner serve                                    the page, at http://127.0.0.1:8765/
  captioner serve --translator runs/multi30k/model   another translator than the packaged one
  captioner serve --model runs/coco/model --port 80
  captioner serve --host 0.0.0.0                     for everybody who can reach this machine
  curl -F photo=@photo.jpg http://127.0.0.1:8765/api/caption

What is sent is neither written to disk nor kept. Ctrl-C and SIGTERM end it when the requests under
way are answered. It needs its extra: pip install "captioner[serve]".
"""

_PARTS = {"fastapi", "uvicorn", "python_multipart"}
"""What the extra installs, by the names under which it is imported."""


_LIMITS = {
    "max_upload": ("upload_bytes", 1024**2),
    "max_pixels": ("pixels", 1_000_000),
    "max_photos": ("photos", 1),
    "max_waiting": ("waiting", 1),
    "timeout": ("seconds", 1),
}
"""Options of limits: the field of `Limits` that each sets, and its unit."""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "serve", "open a page that captions photos", DESCRIPTION)
    parser.add_argument(
        "--model",
        default="default",
        help="a model folder, or a packaged model (default: %(default)s)",
    )
    parser.add_argument(
        "--translator",
        metavar="MODEL",
        default=DEFAULT_TRANSLATOR,
        help="a folder of a translation model, or a packaged one (default: %(default)s)",
    )
    parser.add_argument(
        "--no-translator",
        dest="translator",
        action="store_const",
        const=None,
        help="leave out the tab that translates",
    )
    add_device(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        help="photos worked on at a time, of all requests together (default: %(default)s)",
    )
    net = parser.add_argument_group("network")
    net.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on: this machine's own, or 0.0.0.0 for all (default: %(default)s)",
    )
    net.add_argument(
        "--port", type=int, default=8765, help="0 for any that is free (default: %(default)s)"
    )
    net.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers may call this machine; localhost, its own and addresses in "
        "numbers always may",
    )
    net.add_argument("--open", action="store_true", help="open the page in a browser")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-upload", type=float, metavar="MB", help="of one request (default: 32)"
    )
    limits.add_argument(
        "--max-pixels", type=float, metavar="MILLIONS", help="of a photo (default: 64)"
    )
    limits.add_argument("--max-photos", type=int, metavar="N", help="in a request (default: 16)")
    limits.add_argument(
        "--max-waiting",
        type=int,
        metavar="N",
        help="photos and sentences not answered yet, of all requests; more are answered with "
        "'busy' (default: 256)",
    )
    limits.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="for one request (default: 60)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size {arguments.batch_size} is not at least 1")
    import socket

    try:
        from captioner.serve.app import make_app
        from captioner.serve.limits import Limits
        from captioner.serve.server import listen, serve
        from captioner.serve.service import Service
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PARTS:
            raise
        raise UserError(
            'captioner serve needs more packages: pip install "captioner[serve]"'
        ) from None
    from captioner import __version__, load, load_translator
    from captioner.demo import demo_photo

    limits = Limits(**_limits(arguments))
    listener = listen(arguments.host, arguments.port)
    try:
        model = load(arguments.model, arguments.device)
        name = arguments.translator
        translator = None if name is None else load_translator(name, arguments.device)
        try:
            demo = demo_photo()
        except UserError:
            demo = None
        service = Service(model, translator, limits, arguments.batch_size)
        own = socket.gethostname()
        names = (arguments.host, own, f"{own}.local", *arguments.allow_host)

        def on_start() -> None:
            print(f"captioner: {listener.address} is open; Ctrl-C ends it", flush=True)
            if arguments.open:
                import webbrowser

                webbrowser.open(listener.here)

        app = make_app(service, names, demo, __version__, on_start)
        serve(app, listener, limits.seconds)
    finally:
        listener.socket.close()
    print("captioner: ended", flush=True)
    return 0


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    """The limits that were given, in the units of `Limits`."""
    given: dict[str, Any] = {}
    for option, (name, unit) in _LIMITS.items():
        value = getattr(arguments, option)
        if value is None:
            continue
        if not 0 < value < math.inf:
            raise UserError(f"--{option.replace('_', '-')} {value:g} is not a number above 0")
        given[name] = value * unit if name == "seconds" else max(1, int(value * unit))
    return given
