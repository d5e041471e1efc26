"""`captioner serve`."""

import argparse
import os
import re
from contextlib import nullcontext
from functools import partial

from pydantic import HttpUrl

from captioner.cli import shared_options as shared
from captioner.errors import UserError, refuse_missing
from captioner.files import file_lock, read_text
from captioner.loading import LANGUAGES
from captioner.serve import UNDETERMINED, Limits
from captioner.text.languages import language_tag

_LIMITS = (
    ("--max-upload", "upload_bytes", 1024**2, "MB"),
    ("--max-pixels", "pixels", 1_000_000, "MILLIONS"),
    ("--max-photos", "photos", 1, "N"),
    ("--max-waiting", "waiting", 1, "N"),
    ("--decoding-seconds", "decoding_seconds", 1, "SECONDS"),
    ("--timeout", "seconds", 1, "SECONDS"),
)
"""Options with their fields of `Limits`, units and metavars."""


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    usage, summary = "serve [options]", "open a page that captions photos"
    parser, _ = shared.add_parser(commands, run, usage, summary)
    group = parser.add_argument_group("models")
    shared.add_option(group, "--model", "MODEL", shared.MODEL_HELP, default="default")
    shared.add_option(group, "--calibration", "FILE", shared.CALIBRATION_HELP)
    about = "translates text and captions into TAG; repeatable (default: the packaged ones)"
    either = group.add_mutually_exclusive_group()
    more: dict[str, object] = {"action": "append", "type": _translator}
    shared.add_option(either, "--translator", "[TAG=]MODEL", about, **more)
    nothing: dict[str, object] = {"action": "store_const", "const": [], "dest": "translator"}
    shared.add_option(either, "--no-translator", "", "leave out the tab that translates", **nothing)
    add = shared.add_group(parser, "page")
    add("--title", "TEXT", shared.TITLE_HELP)
    add("--edits", "FILE", "keep captions that are edited on the page, for write and train")
    add = shared.add_group(parser, "network")
    add("--host", "HOST", "address to listen on; 0.0.0.0 for all", default="127.0.0.1")
    add("--port", "PORT", "0 for any that is free", type=int, default=8765)
    several: dict[str, object] = {"action": "append", "default": []}
    add("--allow-host", "NAME", "a further host name, or *.example.org; repeatable", **several)
    add("--public-url", "URL", "of the page behind a proxy: https://example.org/photos/", type=url)
    about = "a site whose pages may use the interface: https://example.org; repeatable"
    add("--allow-origin", "URL", about, type=url, **several)
    add("--token-file", "FILE", "the interface needs its token (default: that of CAPTIONER_TOKEN)")
    add("--access-log", "", "print a line for each request")
    add("--open", "", "open the page in a browser")
    add = shared.add_group(parser, "limits")
    for option, name, unit, value in _LIMITS:
        field = Limits.model_fields[name]
        default = f"{field.default / unit:g}"  # argparse reads it as it reads an option's value.
        kind = partial(_limit, type(field.default), unit)
        add(option, value, f"{field.description}", dest=name, type=kind, default=default)
    shared.add_machine(parser, "photos in a batch of all requests", 32)


def _limit(kind: type[float], unit: int, text: str) -> float:
    return kind(shared.positive(text) * unit)


def url(text: str) -> str:
    """The address of a page, checked."""
    try:
        HttpUrl(text)
    except ValueError:
        message = f"{text} is not the address of a page, as https://example.org"
        raise argparse.ArgumentTypeError(message) from None
    return text


def _translator(text: str) -> tuple[str, str]:
    """The language tag of [TAG=]MODEL, `UNDETERMINED` if it is not known, and the model."""
    tag, sign, name = text.partition("=")
    if sign:
        return language_tag(tag, "--translator"), name
    return {name: tag for tag, name in LANGUAGES.items()}.get(text, UNDETERMINED), text


def run(arguments: argparse.Namespace) -> None:
    """Opens a page on this machine: drop photos, read their captions, point at words
    to see attention maps; or translate sentences and see their alignments. The HTTP
    interface is described at /docs and by /api/openapi.json.

      captioner serve                    the page, at http://127.0.0.1:8765/
      captioner serve --host 0.0.0.0     for every machine that can reach this one

    Photos are not kept, captions edited on the page are with --edits. Needs
    pip install "captioner[serve]".
    """
    with refuse_missing("captioner serve needs FastAPI and uvicorn", "serve"):
        from captioner.serve.app import make_app
        from captioner.serve.edits import Edits
        from captioner.serve.server import listen, serve
        from captioner.serve.service import Service
    from captioner import load, load_translator

    limits = Limits(**{name: getattr(arguments, name) for _, name, _, _ in _LIMITS})
    token = _token(arguments.token_file)
    machine = shared.machine(arguments)
    chosen = LANGUAGES.items() if arguments.translator is None else arguments.translator
    names = dict(chosen)
    if len(names) < len(chosen):
        raise UserError("two --translator are of one language; write TAG=MODEL, such as de=runs/a")
    for name in arguments.allow_host:
        if not re.fullmatch(r"(\*\.)?[\w.:\[\]-]+", name):
            raise UserError(f"--allow-host {name} is not a name, or *. and a name")
    listener = listen(arguments.host, arguments.port)
    table = arguments.edits
    with listener.socket, file_lock(table) if table else nullcontext():
        edits = Edits(table) if table else None
        model = load(arguments.model, **machine, calibration=arguments.calibration)
        translators = {tag: load_translator(name, **machine) for tag, name in names.items()}
        title, size = arguments.title or "", arguments.batch_size
        service = Service(model, translators, limits, size, title, edits)
        hosts = (*listener.names, *arguments.allow_host)
        app = make_app(service, hosts, arguments.public_url, arguments.allow_origin, token)
        # The socket listens already: connections wait for the server.
        print(f"captioner: {listener.address} is open; Ctrl-C ends it", flush=True)
        if arguments.host in ("0.0.0.0", "::") and not arguments.allow_host:
            print("captioner: other names of this machine need --allow-host NAME", flush=True)
        if arguments.open:
            import webbrowser

            here = listener.address
            if arguments.host in ("0.0.0.0", "::"):  # Browsers open the camera for localhost only.
                here = f"http://localhost:{listener.socket.getsockname()[1]}/"
            webbrowser.open(here)
        serve(app, listener, limits, arguments.access_log)
    print("captioner: ended", flush=True)


def _token(file: str | None) -> str | None:
    """The token of a file or else of the environment, which `ps` does not show."""
    token = os.environ.get("CAPTIONER_TOKEN") if file is None else read_text(file, "token file")
    if token is not None and not re.fullmatch(r"[!-~]+", token := token.strip()):
        raise UserError(f"{file or 'CAPTIONER_TOKEN'} should hold a token, without spaces in it")
    return token
