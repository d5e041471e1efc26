"""Abbreviations that keep their period ("st.", "mr."), and words split in two ("cannot")."""

from __future__ import annotations

from collections.abc import Iterable


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def any_case(words: Iterable[str]) -> str:
    """Return a case-insensitive regular expression for one of the words."""
    return f"(?i:{'|'.join(words)})"


ENDING = _words("""
    al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn corp cos ct dak dec
    esq est etc ext feb fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich
    minn mo mon mont neb nev nov oct okla penn plc rd rt sep sept seq sq sr sys tel tenn thu
    thurs tue tues univ va vt wed wis wisc wyo
""")
"""Months, days, states, companies: abbreviations that may end a sentence."""

ENDING_AS_WRITTEN = _words("""
    ppte pptes ppty pptys pte ptes pty ptys
""")
"""As `ENDING`, but only the first letter may be upper case."""

ENDING_WITH_CAPITAL = _words("""
    ark az del ill la mass miss ore pa tex wash
""")
"""As `ENDING`, but the first letter must be upper case: in lower case they are words."""

TITLES = _words("""
    adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs
    elec ens ft gen gov govs hon insp invt jos lieut lt maj messrs mlle mme mr mrs ms msgr mt
    natl pfc ph pres prof profs pvt rep reps rev sen sens sfc sgt spc st ste supt supts treas vs wm
""")
"""Abbreviations that a name or more follows, such as "mr."."""

TITLES_AS_WRITTEN = _words("""
    mfg mtg
""")
"""As `TITLES`, but only the first letter may be upper case."""

BEFORE_NUMBER = _words("""
    art ca fig figs no nos op pp prop
""")
"""Abbreviations that keep their period only before a number."""

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
"""Regular expression: an abbreviation that may end a sentence, with its period."""

TITLE_ABBREVIATION = rf"(?:{any_case(TITLES)}|[mM](?:fg|tg))\."
"""Regular expression: a title with its period."""

NUMBER_ABBREVIATION = rf"{any_case(BEFORE_NUMBER)}\."
"""Regular expression: an abbreviation before a number, with its period."""

ABBREVIATIONS = (
    *(*ENDING, *ENDING_AS_WRITTEN, *ENDING_WITH_CAPITAL),
    *(*TITLES, *TITLES_AS_WRITTEN, *BEFORE_NUMBER),
)
"""All abbreviations without their periods, except `IRREGULAR`."""

SENTENCE_STARTS = _words("""
    A About According Additionally After An As At But Earlier He Her Here However If In It
    Last Many More Now Once One Other Our She Since So Some Such That The Their Then There
    These They This We What When While Yet You
""")
"""Words that begin a sentence: before one, "K." is a letter and the end of a sentence."""

SENTENCE_START = (
    f"(?:{'|'.join(f'{word[0]}(?i:{word[1:]})' for word in SENTENCE_STARTS)}" r"|M(?i:[rs])\.)"
)
"""Regular expression: a sentence start, capitalised; or "Mr." or "Ms."."""

SPLIT_WORDS = ("cannot", "gonna", "gotta", "gimme", "lemme", "wanna")
"""Words split after three letters: "can not"."""
