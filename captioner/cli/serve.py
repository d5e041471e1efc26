"""`captioner serve`."""

from __future__ import annotations

import argparse
import math
import os
import re

from pydantic import HttpUrl

from captioner.cli import shared_options as shared
from captioner.errors import UserError
from captioner.files import read_text
from captioner.models import LANGUAGES
from captioner.serve import Limits
from captioner.text.languages import language_tag

DESCRIPTION = """\
Opens a page on this machine: drop photos, read their captions, point at words
to see attention maps; or translate sentences and see their alignments. The HTTP
interface is described at /docs and by /api/openapi.json.

  captioner serve                    the page, at http://127.0.0.1:8765/
  captioner serve --host 0.0.0.0     for every machine that can reach this one
  curl -F photo=@photo.jpg http://127.0.0.1:8765/api/caption

Uploads are not kept. Needs pip install "captioner[serve]".
"""

_LIMITS = (
    ("--max-upload", "upload_bytes", 1024**2, "MB"),
    ("--max-pixels", "pixels", 1_000_000, "MILLIONS"),
    ("--max-photos", "photos", 1, "N"),
    ("--max-waiting", "waiting", 1, "N"),
    ("--timeout", "seconds", 1, "SECONDS"),
)
"""Options with their fields of `Limits`, units and metavars."""


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    summary = "open a page that captions photos"
    parser = shared.add_parser(commands, "serve", run, summary, "[options]", DESCRIPTION)
    models = parser.add_argument_group("models")
    shared.add_model(models)
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
    add = parser.add_argument_group("network").add_argument
    about = "address to listen on; 0.0.0.0 for all (default: %(default)s)"
    add("--host", default="127.0.0.1", help=about)
    add("--port", type=int, default=8765, help="0 for any that is free (default: %(default)s)")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept requests to this host name or address as well, such as *.example.org; "
        "repeatable",
    )
    about = "of the page behind a proxy, such as https://example.org/captions/"
    add("--public-url", metavar="URL", help=about)
    about = "a site whose pages may use the interface, such as https://example.org; repeatable"
    add("--allow-origin", action="append", default=[], metavar="URL", help=about)
    about = "its token is needed to use the interface (default: that of CAPTIONER_TOKEN, if set)"
    add("--token-file", metavar="FILE", help=about)
    add("--access-log", action="store_true", help="print a line for each request")
    add("--open", action="store_true", help="open the page in a browser")
    limits = parser.add_argument_group("limits")
    for option, name, unit, value in _LIMITS:
        field = Limits.model_fields[name]
        limits.add_argument(
            option,
            dest=name,
            type=float,
            metavar=value,
            help=f"{field.description} (default: {field.default / unit:g})",
        )
    shared.add_machine(parser, "photos in a batch of all requests", 32, precision=True)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        from captioner.serve.app import make_app
        from captioner.serve.server import listen, serve
        from captioner.serve.service import Service
    except ModuleNotFoundError:
        raise UserError(
            'captioner serve needs more packages: pip install "captioner[serve]"'
        ) from None
    from captioner import load, load_translator

    limits = _limits(arguments)
    token = _token(arguments.token_file)
    public, sites = arguments.public_url, arguments.allow_origin
    if public is not None:
        _check_url("--public-url", public)
    for site in sites:
        _check_url("--allow-origin", site)
    for name in arguments.allow_host:
        if "*" in name.removeprefix("*."):
            raise UserError(f"--allow-host {name} is not a name, or *. and a name")
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
        app = make_app(service, hosts, public, sites, token)
        # The socket listens already: who comes now waits for the server.
        print(f"captioner: {listener.address} is open; Ctrl-C ends it", flush=True)
        if arguments.open:
            import webbrowser

            webbrowser.open(listener.address)
        serve(app, listener, limits, arguments.access_log)
    finally:
        listener.socket.close()
    print("captioner: ended", flush=True)
    return 0


def _limits(arguments: argparse.Namespace) -> Limits:
    """The given limits, in the units of `Limits`."""
    given = {}
    for option, name, unit, _ in _LIMITS:
        value = getattr(arguments, name)
        if value is not None:
            if not 0 < value < math.inf:
                raise UserError(f"{option} {value:g} is not a number above 0")
            given[name] = type(Limits.model_fields[name].default)(value * unit)
    return Limits(**given)


def _check_url(option: str, url: str) -> None:
    try:
        HttpUrl(url)
    except ValueError:
        raise UserError(f"{option} {url} is not the address of a page") from None


def _token(file: str | None) -> str | None:
    """The token of a file or else of the environment, which `ps` does not show."""
    token = os.environ.get("CAPTIONER_TOKEN") if file is None else read_text(file, "token file")
    if token is not None and not re.fullmatch(r"[!-~]+", token := token.strip()):
        raise UserError(f"{file or 'CAPTIONER_TOKEN'} should hold a token, without spaces in it")
    return token


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
