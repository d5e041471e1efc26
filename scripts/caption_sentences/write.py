"""Writes pairs of caption-like sentences, made of a small dictionary and of templates.

Multi30k hardly names animals other than dogs, food and furniture, and seldom says "a close up of".
`captions.en`, `captions.de` and `captions.fr` hold each noun of `nouns.csv` in each template of its
kind, with some of `adjectives.csv` where it has one, line by line.
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
    "m": {"ein": "ein", "einem": "einem", "einen": "einen", "ending": "er", "einen_ending": "en"},
    "n": {"ein": "ein", "einem": "einem", "einen": "ein", "ending": "es", "einen_ending": "es"},
    "f": {"ein": "eine", "einem": "einer", "einen": "eine", "ending": "e", "einen_ending": "e"},
}
"""German articles and the endings of an adjective after `ein` and `einen`, by gender."""

ADJECTIVES_EACH = 3
"""Adjectives a noun has in each template with one."""


def english(noun: dict[str, str], adjective: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in English templates."""
    article = "an" if noun["en"].startswith(("a", "e", "i", "o", "um")) else "a"
    with_article = noun["en"] if noun["kind"] == "mass" else f"{article} {noun['en']}"
    with_adjective = f"a {adjective['en']} {noun['en']}"
    return {
        "a": with_article,
        "A": _capital(with_article),
        "a_adj": with_adjective,
        "A_adj": _capital(with_adjective),
        "s": noun["en_plural"],
    }


def german(noun: dict[str, str], adjective: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in German templates; n-declension is written `Bär/Bären`."""
    nominative, _, other = noun["de"].partition("/")
    articles, plural = ARTICLES[noun["de_gender"]], noun["de_plural"]
    oblique = other or nominative
    found = {"s": plural, "s_dative": plural if plural[-1] in "nsa" else f"{plural}n"}
    for name, form, ending in (
        ("ein", nominative, articles["ending"]),
        ("einem", oblique, "en"),
        ("einen", oblique, articles["einen_ending"]),
    ):
        article = articles[name]
        found[name] = form if noun["kind"] == "mass" else f"{article} {form}"
        found[f"{name}_adj"] = f"{article} {adjective['de']}{ending} {form}"
    return found | {"Ein": _capital(found["ein"]), "Ein_adj": _capital(found["ein_adj"])}


def french(noun: dict[str, str], adjective: dict[str, str]) -> dict[str, str]:
    """The forms of a noun in French templates."""
    feminine, name, plural = noun["fr_gender"] == "f", noun["fr"], noun["fr_plural"]
    article = "une" if feminine else "un"
    agreeing = adjective["fr_feminine" if feminine else "fr"]
    pair = (agreeing, name) if adjective["is_before"] else (name, agreeing)
    with_article = name if noun["kind"] == "mass" else f"{article} {name}"
    with_adjective = " ".join((article, *pair))
    return {
        "un": with_article,
        "Un": _capital(with_article),
        "of_un": _of(with_article),
        "un_adj": with_adjective,
        "Un_adj": _capital(with_adjective),
        "of_un_adj": _of(with_adjective),
        "s": plural,
        "of_s": _of(plural),
        "e": "e" if feminine else "",
    }


def sentences() -> Iterator[tuple[str, str, str]]:
    """English, German and French sentences."""
    nouns, templates, adjectives = (
        _rows(HERE / f"{name}.csv") for name in ("nouns", "templates", "adjectives")
    )
    for number, noun in enumerate(nouns):
        alike = [each for each in nouns if each["kind"] == noun["kind"] and each is not noun]
        for place, template in enumerate(templates):
            if noun["kind"] not in template["kinds"].split():
                continue
            for turn in range(ADJECTIVES_EACH if "_adj}" in template["en"] else 1):
                adjective = adjectives[(5 * number + 3 * place + turn) % len(adjectives)]
                other = alike[(7 * number + place) % len(alike)], adjective
                yield (
                    template["en"].format(**english(noun, adjective), other=english(*other)["a"]),
                    template["de"].format(**german(noun, adjective), other=german(*other)["einem"]),
                    template["fr"].format(
                        **french(noun, adjective),
                        other=french(*other)["un"],
                        of_other=french(*other)["of_un"],
                    ),
                )


def _of(text: str) -> str:
    return f"d'{text}" if text[0] in "aeiouéèœ" else f"de {text}"


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
    found = zip(*dict.fromkeys(sentences()), strict=True)  # Two templates may agree for a noun.
    for name, lines in zip(("en", "de", "fr"), found, strict=True):
        write_text(out / f"captions.{name}", "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
