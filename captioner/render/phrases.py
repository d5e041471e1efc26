"""The words on drawings and pages beside the caption, in the languages of captions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phrases:
    """The words of one language, with its tag; `usage` is HTML, the others plain text.

    sure: in three degrees, from the least. Captions in other languages are translations; their
    probabilities are the translator's.
    """

    language: str
    not_sure: str
    sure: tuple[str, str, str]
    legend: str
    title: str
    usage: str
    strength: str
    search: str
    no_script: str
    play: str
    stop: str
    copy: str
    copied: str


_ENGLISH = Phrases(
    language="en",
    not_sure="not sure",
    sure=("somewhat sure", "fairly sure", "quite sure"),
    legend="%: how likely the model found the word, given the words before it.",
    title="Where the model looked",
    usage="""Point at a word, tap it, or press <kbd>←</kbd> <kbd>→</kbd>: bright is where the model
looked when it wrote that word. A click pins the word, <kbd>Esc</kbd> releases it. Hatched: not seen
by the model.""",
    strength="Strength",
    search="Search captions",
    no_script="Without its script this page shows the photos and captions, but no maps.",
    play="Play",
    stop="Stop",
    copy="Copy",
    copied="Copied",
)

_GERMAN = Phrases(
    language="de",
    not_sure="nicht sicher",
    sure=("einigermaßen sicher", "ziemlich sicher", "sehr sicher"),
    legend="%: wie wahrscheinlich das Wort in der Übersetzung ist, nach den Wörtern davor.",
    title="Wohin das Modell geschaut hat",
    usage="""Auf ein Wort zeigen, es antippen oder <kbd>←</kbd> <kbd>→</kbd> drücken: Hell ist,
wohin das Modell geschaut hat, als es das Wort schrieb. Ein Klick hält das Wort fest, <kbd>Esc</kbd>
löst es. Schraffiert: vom Modell nicht gesehen.""",
    strength="Stärke",
    search="Bildtext suchen",
    no_script="Ohne ihr Skript zeigt diese Seite die Fotos und Bildtexte, aber keine Karten.",
    play="Abspielen",
    stop="Anhalten",
    copy="Kopieren",
    copied="Kopiert",
)

_FRENCH = Phrases(
    language="fr",
    not_sure="incertain",
    sure=("plutôt sûr", "assez sûr", "très sûr"),
    legend="% : probabilité du mot dans la traduction, après les mots précédents.",
    title="Où le modèle a regardé",
    usage="""Pointez un mot, touchez-le ou appuyez sur <kbd>←</kbd> <kbd>→</kbd> : en clair, ce que
le modèle regardait en écrivant ce mot. Un clic fixe le mot, <kbd>Échap</kbd> le libère. Hachuré :
non vu par le modèle.""",
    strength="Intensité",
    search="Chercher une légende",
    no_script="Sans son script, cette page montre les photos et les légendes, mais pas les cartes.",
    play="Lire",
    stop="Arrêter",
    copy="Copier",
    copied="Copié",
)

_BY_LANGUAGE = {known.language: known for known in (_ENGLISH, _GERMAN, _FRENCH)}


def phrases(language: str) -> Phrases:
    """The words for a language's tag, such as "de" or "de-CH"; English for others."""
    return _BY_LANGUAGE.get(language.partition("-")[0], _ENGLISH)
