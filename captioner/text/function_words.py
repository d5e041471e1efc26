"""Function words: they name nothing in a photo."""

from __future__ import annotations

import re


def word_set(text: str) -> frozenset[str]:
    """The words of a text, divided by white space."""
    return frozenset(text.split())


FUNCTION_WORDS = word_set("""
    a an the this that these those some any no all both each every either another other such

    i me my you your he him his she her hers it its we us our they them their theirs himself
    herself itself themselves who whom whose which what there here something someone one

    about above across after against along alongside amid among around as at away before behind
    below beneath beside besides between beyond by down during for from front in inside into
    left near nearby next of off on onto out outside over past right through to together toward
    towards under underneath up upon via while with within without

    and but or nor so if than then because when where

    am are is was were be been being do does did has have had having can could may might must
    shall should will would not n't 's 'm 'd 'll 're 've

    also as just only too very
""")
"""English function words, tokenised as by `tokenize`, a paragraph each: determiners, pronouns,
prepositions (with "front", "left", "right" and "next", which occur in them), conjunctions,
auxiliaries and adverbs of degree. All others are content words.
"""

_GERMAN = word_set("""
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner
    dieser diese dieses diesen diesem jeder jede jedes jeden jedem alle allen alles beide beiden
    andere anderen anderer anderes anderem einige einigen solche solchen

    ich mich mir mein meine du dich dir dein deine er ihn ihm sie es wir uns unser unsere euch
    man sich einander sein seine seinen seinem seiner seines ihr ihre ihren ihrem ihrer ihres
    ihnen wer wen wem was deren dessen denen welcher welche welches da dort hier jemand etwas

    ab an am ans auf aufs aus außerhalb bei beim bis durch entlang für gegen gegenüber hinter
    hinterm in im ins innerhalb mit nach nahe neben oberhalb ohne seit über um unter unterhalb
    unterm von vom vor vorm während wegen zu zum zur zwischen dabei dahinter damit daneben daran
    darauf darin darunter davon davor dazu herum herunter hinauf hinein hinunter hinten vorne
    oben unten links rechts zusammen

    und oder aber sondern denn dass ob wenn als wie weil wo so dann

    bin bist ist sind seid war waren wird werden wurde wurden worden habe hat haben hatte hatten
    kann können konnte muss müssen darf dürfen soll sollen will wollen nicht

    auch gerade nur sehr
""")

_FRENCH = word_set("""
    le la les un une des du au aux ce cet cette ces chaque tout toute tous toutes autre autres
    quelque quelques aucun aucune tel telle même mêmes

    je me moi mon ma mes tu te toi ton ta tes il ils elle elles lui leur leurs se soi son sa ses
    nous notre nos vous votre vos on eux en y qui que quoi dont lequel laquelle lesquels celui
    celle ceux celles ci là ici

    à après au-dessous au-dessus autour avant avec chez contre côté dans de depuis derrière
    dessous dessus devant durant entre hors jusque loin lors par parmi pendant pour près sans
    sous sur vers travers ensemble

    et ou où mais donc ni si comme lorsque quand puisque tandis alors puis

    suis es est sommes êtes sont était étaient être étant ai as a avons avez ont avait avaient
    avoir ayant peut peuvent doit doivent ne pas

    aussi moins plus très trop

    d l qu c j m n s t jusqu lorsqu puisqu quelqu
""")

_BY_LANGUAGE = {"en": FUNCTION_WORDS, "de": _GERMAN, "fr": _FRENCH}


def is_function_word(word: str, language: str) -> bool:
    """Whether a word of a caption names nothing, in any case and with punctuation after it.

    language: a tag; languages other than English, German and French have no such words here. A
    French word is one if it is so before and after its apostrophe: "d'une" is, "l'eau" is not.
    """
    code = language.partition("-")[0]
    word = word.lower().rstrip(".,;:!?")
    parts = [part for part in re.split("['’]", word) if part] if code == "fr" else [word]
    return bool(parts) and _BY_LANGUAGE.get(code, frozenset()).issuperset(parts)
