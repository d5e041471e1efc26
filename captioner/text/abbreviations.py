"""Words that keep their period: "st.", "mr.", before a number "no."; and words that are two."""

from __future__ import annotations

from collections.abc import Iterable


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def any_case(words: Iterable[str]) -> str:
    """A regular expression for one of these words, in capitals or not."""
    return f"(?i:{'|'.join(words)})"


ENDING = _words("""
    al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn corp cos ct dak dec
    esq est etc ext feb fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich
    minn mo mon mont neb nev nov oct okla penn plc rd rt sep sept seq sq sr sys tel tenn thu
    thurs tue tues univ va vt wed wis wisc wyo
""")
"""Months, days, states, companies and others that may end a sentence."""

ENDING_AS_WRITTEN = _words("""
    ppte pptes ppty pptys pte ptes pty ptys
""")
"""More of them, whose first letter alone may be a capital."""

ENDING_WITH_CAPITAL = _words("""
    ark az del ill la mass miss ore pa tex wash
""")
"""More of them, that are words where they begin with a small letter."""

TITLES = _words("""
    adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs
    elec ens ft gen gov govs hon insp invt jos lieut lt maj messrs mlle mme mr mrs ms msgr mt
    natl pfc ph pres prof profs pvt rep reps rev sen sens sfc sgt spc st ste supt supts treas vs wm
""")
"""Those that something follows, as a name does "mr."."""

TITLES_AS_WRITTEN = _words("""
    mfg mtg
""")
"""More of them, whose first letter alone may be a capital."""

BEFORE_NUMBER = _words("""
    art ca fig figs no nos op pp prop
""")
"""Those that keep their period before a number only."""

IRREGULAR = r"(?i:(?:ph|ed)\.d\.|cont'd\.)"
"""Ph.D., Ed.D. and cont'd."""

ENDING_ABBREVIATION = "|".join(
    [
        IRREGULAR,
        rf"{any_case(ENDING)}\.",
        rf"(?:{'|'.join(f'(?i:{word[0]}){word[1:]}' for word in ENDING_AS_WRITTEN)})\.",
        rf"(?:{'|'.join(f'{word[0].upper()}(?i:{word[1:]})' for word in ENDING_WITH_CAPITAL)})\.",
    ]
)
"""One of the abbreviations that may end a sentence, with its period, as a regular expression."""

TITLE_ABBREVIATION = rf"(?:{any_case(TITLES)}|[mM](?:fg|tg))\."
"""One of the titles, with its period, as a regular expression."""

NUMBER_ABBREVIATION = rf"{any_case(BEFORE_NUMBER)}\."
"""One of those before a number, with its period, as a regular expression."""

ABBREVIATIONS = (
    *(*ENDING, *ENDING_AS_WRITTEN, *ENDING_WITH_CAPITAL),
    *(*TITLES, *TITLES_AS_WRITTEN, *BEFORE_NUMBER),
)
"""All of them, without their periods (but the irregular ones)."""

SENTENCE_STARTS = _words("""
    A About According Additionally After An As At But Earlier He Her Here However If In It
    Last Many More Now Once One Other Our She Since So Some Such That The Their Then There
    These They This We What When While Yet You
""")
"""Words that begin a sentence: before one of them, "K." is a letter and the end of a sentence."""

SENTENCE_START = (
    f"(?:{'|'.join(f'{word[0]}(?i:{word[1:]})' for word in SENTENCE_STARTS)}" r"|M(?i:[rs])\.)"
)
"""One of them, its first letter a capital, as a regular expression; or "Mr." or "Ms."."""

SPLIT_WORDS = ("cannot", "gonna", "gotta", "gimme", "lemme", "wanna")
"""Words that are two, the first of three letters: "can not"."""
