"""`captioner serve`."""

from __future__ import annotations

import argparse
import math
from typing import Any
from urllib.parse import urlsplit

from captioner.cli.shared_options import (
    Commands,
    add_machine,
    add_model,
    add_parser,
)
from captioner.errors import UserError
from captioner.models import LANGUAGES
from captioner.serve.limits import Limits
from captioner.text.languages import language_tag

DESCRIPTION = """\
Opens a page on this machine: drop photos, read their captions, point at words
to see attention maps; or translate sentences and see their alignments. The HTTP
interface is described by /api/openapi.json.

  captioner serve                    the page, at http://127.0.0.1:8765/
  captioner serve --host 0.0.0.0     for every machine that can reach this one
  curl -F photo=@photo.jpg http://127.0.0.1:8765/api/caption

Uploads are not kept. Needs pip install "captioner[serve]".
"""

_PARTS = {"fastapi", "uvicorn", "python_multipart"}
"""Modules of the extra."""

_LIMITS = {
    "max_upload": ("upload_bytes", 1024**2, "MB"),
    "max_pixels": ("pixels", 1_000_000, "MILLIONS"),
    "max_photos": ("photos", 1, "N"),
    "max_waiting": ("waiting", 1, "N"),
    "timeout": ("seconds", 1, "SECONDS"),
}
"""By option: the field of `Limits`, its unit and the option's metavar."""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "open a page that captions photos"
    parser = add_parser(commands, "serve", summary, DESCRIPTION, "[options]")
    models = parser.add_argument_group("models")
    add_model(models)
    models.add_argument(
        "--translator",
        action="append",
        metavar="[TAG=]MODEL",
        help="translates into language TAG; repeatable; captions are offered in TAG as well "
        "(default: the packaged ones)",
    )
    models.add_argument(
        "--no-translator",
        dest="translator",
        action="store_const",
        const=[],
        help="leave out the tab that translates",
    )
    net = parser.add_argument_group("network")
    net.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 for all (default: %(default)s)",
    )
    net.add_argument(
        "--port", type=int, default=8765, help="0 for any that is free (default: %(default)s)"
    )
    net.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept requests to this host name or address as well, such as *.example.org; "
        "repeatable",
    )
    net.add_argument(
        "--public-url",
        metavar="URL",
        help="of the page behind a proxy, such as https://example.org/captions/",
    )
    net.add_argument("--access-log", action="store_true", help="print a line for each request")
    net.add_argument("--open", action="store_true", help="open the page in a browser")
    limits = parser.add_argument_group("limits")
    for option, (name, unit, value) in _LIMITS.items():
        field = Limits.model_fields[name]
        limits.add_argument(
            f"--{option.replace('_', '-')}",
            type=int if value == "N" else float,
            metavar=value,
            help=f"{field.description} (default: {field.default / unit:g})",
        )
    add_machine(parser, "photos in a batch of all requests", 32, precision=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        from captioner.serve.app import make_app
        from captioner.serve.server import listen, serve
        from captioner.serve.service import Service
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PARTS:
            raise
        raise UserError(
            'captioner serve needs more packages: pip install "captioner[serve]"'
        ) from None
    from captioner import __version__, load, load_translator

    limits = Limits(**_limits(arguments))
    public = arguments.public_url
    if public is not None and not _is_page(public):
        raise UserError(f"--public-url {public} is not the address of a page")
    for name in arguments.allow_host:
        if "*" in name[1:] or (name.startswith("*") and name[1:2] not in ("", ".")):
            raise UserError(f"--allow-host {name} is not a name, or * before a dot and a name")
    names = LANGUAGES if arguments.translator is None else _by_language(arguments.translator)
    listener = listen(arguments.host, arguments.port)
    try:
        model = load(arguments.model, arguments.device, arguments.precision)
        translators = {
            tag: load_translator(name, arguments.device, arguments.precision)
            for tag, name in names.items()
        }
        service = Service(model, translators, limits, arguments.batch_size)
        hosts = (*listener.names, *arguments.allow_host)
        app = make_app(service, hosts, __version__, public)
        # The socket listens already: who comes now waits for the server.
        print(f"captioner: {listener.address} is open; Ctrl-C ends it", flush=True)
        if arguments.open:
            import webbrowser

            webbrowser.open(listener.here)
        serve(app, listener, limits, arguments.access_log)
    finally:
        listener.socket.close()
    print("captioner: ended", flush=True)
    return 0


def _by_language(translators: list[str]) -> dict[str, str]:
    """Models of --translator by the tag of their language."""
    from captioner.serve.service import UNDETERMINED

    tags = {name: tag for tag, name in LANGUAGES.items()}
    names: dict[str, str] = {}
    for given in translators:
        tag, sign, name = given.partition("=")
        if not sign:
            tag, name = tags.get(given, UNDETERMINED), given
        tag = language_tag(tag, "--translator")
        if not name:
            raise UserError(f"--translator {given} names no model; write TAG=MODEL")
        if tag in names:
            raise UserError(
                f"--translator names two models for the language {tag}; write TAG=MODEL"
            )
        names[tag] = name
    return names


def _is_page(address: str) -> bool:
    """Whether it is the address of a page."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port without sense.
        return False


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    """The given limits, in the units of `Limits`."""
    given: dict[str, Any] = {}
    for option, (name, unit, _) in _LIMITS.items():
        value = getattr(arguments, option)
        if value is None:
            continue
        if not 0 < value < math.inf:
            raise UserError(f"--{option.replace('_', '-')} {value:g} is not a number above 0")
        given[name] = value * unit if name == "seconds" else max(1, int(value * unit))
    return given
