"""Abbreviations that keep their period ("st.", "mr."), and words split in two ("cannot")."""

from __future__ import annotations

ENDING = r"""
    al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn cont'd corp cos ct dak
    dec ed\.d esq est etc ext feb fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich
    minn mo mon mont neb nev nov oct okla penn ph\.d plc rd rt sep sept seq sq sr sys tel tenn thu
    thurs tue tues univ va vt wed wis wisc wyo
"""
"""Months, days, states, companies: abbreviations that may end a sentence."""

STATES = "ark az del ill la mass miss ore pa tex wash"
"""As `ENDING`, but the first letter must be upper case: in lower case they are words."""

TITLES = """
    adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs
    elec ens ft gen gov govs hon insp invt jos lieut lt maj messrs mfg mlle mme mr mrs ms msgr mt
    mtg natl pfc ph pres prof profs pvt rep reps rev sen sens sfc sgt spc st ste supt supts treas
    vs wm
"""
"""Titles and other abbreviations that a name or more follows."""

BEFORE_NUMBER = "art ca fig figs no nos op pp prop"
"""Abbreviations that keep their period only before a number."""

SENTENCE_STARTS = """
    A About According Additionally After An As At But Earlier He Her Here However If In It
    Last Many More Now Once One Other Our She Since So Some Such That The Their Then There
    These They This We What When While Yet You
"""
"""Words that begin a sentence: before one, "K." is a letter and the end of a sentence."""

SPLIT_WORDS = "cannot gonna gotta gimme lemme wanna"
"""Words split after three letters: "can not"."""
