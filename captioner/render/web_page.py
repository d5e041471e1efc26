"""Standalone web pages, with nothing to load, and the words on pages and drawings."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from PIL import Image

from captioner.render.overlay import STYLE
from captioner.render.typography import printable
from captioner.text.languages import ENGLISH


@cache
def static_file(name: str) -> str:
    """A style sheet or script of the folder `static`."""
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


def viewer_script() -> str:
    """The JavaScript module that exports `captionViewer`, with the numbers of the overlay."""
    return f"const OVERLAY_STYLE = {json.dumps(asdict(STYLE))};\n{static_file('viewer.js')}"


def web_page(
    title: str, styles: tuple[str, ...], body: str, script: str = "", language: str = "en"
) -> str:
    """An HTML document whose Content-Security-Policy forbids loading anything and other scripts.

    styles: names of style sheets. body: HTML. script: a JavaScript module that runs after it.
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        script = f'<script type="module">{script}</script>\n'
    return f"""<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>{"".join(map(static_file, styles))}</style>
</head>
<body>
{body}{script}</body>
</html>
"""


def escaped(text: str) -> str:
    """Text as one line of HTML without markup."""
    return html.escape(printable(text))


def jpeg_address(photo: Image.Image) -> str:
    """A `data:` address that contains the photo as a JPEG."""
    buffer = io.BytesIO()
    photo.save(buffer, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def phrases(language: str) -> SimpleNamespace:
    """The words of `phrases.json` for a language's tag, such as "de-CH"; English for others.

    sure: in three degrees, from the least. usage: HTML. All others are plain text.
    """
    texts, code = json.loads(static_file("phrases.json")), language.partition("-")[0]
    code = code if code in texts else ENGLISH
    return SimpleNamespace(language=code, **texts[code])
