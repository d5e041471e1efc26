"""Writes pairs of caption-like sentences, made of a small dictionary and of templates.

Multi30k hardly names animals other than dogs, food and furniture, and seldom says "a close up of".
`captions.en`, `captions.de` and `captions.fr` hold each noun of `nouns.csv` in each template of its
kind, line by line.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from captioner.cli.program import run_program
from captioner.files import write_text

HERE = Path(__file__).parent
ARTICLES = {
    "m": {"ein": "ein", "einem": "einem", "einen": "einen", "ending": "er"},
    "n": {"ein": "ein", "einem": "einem", "einen": "ein", "ending": "es"},
    "f": {"ein": "eine", "einem": "einer", "einen": "eine", "ending": "e"},
}
"""German articles and the ending of an adjective after `ein`, by gender."""


def english(noun: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in English templates."""
    article = "an" if noun["en"].startswith(("a", "e", "i", "o", "um")) else "a"
    with_article = f"{article} {noun['en']}"
    return {"n": noun["en"], "a": with_article, "A": _capital(with_article), "s": noun["en_plural"]}


def german(noun: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in German templates; n-declension is written `Bär/Bären`."""
    nominative, _, other = noun["de"].partition("/")
    articles, plural = ARTICLES[noun["de_gender"]], noun["de_plural"]
    oblique = other or nominative
    return {
        "Ein": _capital(f"{articles['ein']} {nominative}"),
        "Ein_rot": f"{_capital(articles['ein'])} rot-weiß{articles['ending']} {nominative}",
        "einem": f"{articles['einem']} {oblique}",
        "einen": f"{articles['einen']} {oblique}",
        "s": plural,
        "s_dative": plural if plural[-1] in "ns" else f"{plural}n",
    }


def french(noun: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in French templates."""
    feminine, plural = noun["fr_gender"] == "f", noun["fr_plural"]
    with_article = f"{'une' if feminine else 'un'} {noun['fr']}"
    return {
        "un": with_article,
        "Un": _capital(with_article),
        "of_un": f"d'{with_article}",
        "s": plural,
        "of_s": f"d'{plural}" if plural[0] in "aeiouéè" else f"de {plural}",
        "e": "e" if feminine else "",
        "blanc": "blanche" if feminine else "blanc",
    }


def sentences() -> Iterator[tuple[str, str, str]]:
    """English, German and French sentences."""
    nouns, templates = (_rows(HERE / name) for name in ("nouns.csv", "templates.csv"))
    for number, noun in enumerate(nouns):
        alike = [each for each in nouns if each["kind"] == noun["kind"] and each is not noun]
        for place, template in enumerate(templates):
            if not {"all", noun["kind"]} & set(template["kinds"].split()):
                continue
            other = alike[(7 * number + place) % len(alike)]
            yield (
                template["en"].format(**english(noun), other=english(other)["a"]),
                template["de"].format(**german(noun), other=german(other)["einem"]),
                template["fr"].format(
                    **french(noun), other=french(other)["un"], of_other=french(other)["of_un"]
                ),
            )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in zip(("en", "de", "fr"), zip(*sentences(), strict=True), strict=True):
        write_text(out / f"captions.{name}", "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
