"""Language tags, function words, and the nouns of English captions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from captioner.errors import UserError

ENGLISH = "en"
"""The language of captions that are not translated."""


def language_tag(text: str, where: str) -> str:
    """A tag of RFC 5646 in its usual case (section 2.1.1): "fr" for FR, "pt-BR" for pt-br.

    where: names it in messages, such as "--language".
    """
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", text):
        raise UserError(f"{where} {text!r} is not a language tag such as de or pt-BR")
    language, *rest = text.lower().split("-")
    cases = {2: str.upper, 4: str.title}  # Regions and scripts.
    return "-".join([language, *(cases.get(len(part), str)(part) for part in rest)])


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
"""English function words, tokenised as by `tokenize`; all others are content words.

A paragraph each: determiners, pronouns, prepositions (with "front", "left", "right" and "next",
which occur in them), conjunctions, auxiliaries and adverbs of degree.
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


def nouns(words: Sequence[str]) -> list[str]:
    """The distinct words of a caption that are likely nouns, in order.

    words: from `tokenize`.
    """
    return [word for word in dict.fromkeys(words) if is_noun(word)]


def is_noun(word: str) -> bool:
    """Whether a word of a caption is likely a noun; a rare verb or adjective passes for one.

    No nouns are function words, frequent verbs, adjectives and numbers, and unknown words in -ing,
    -ed and -ly.
    """
    if word in FUNCTION_WORDS or is_modifier(word) or not word.replace("-", "").isalpha():
        return False
    return len(word) > 1 and (word in _NOUNS or not word.endswith(("ing", "ed", "ly")))


def is_modifier(word: str) -> bool:
    """Whether a word is an adjective, a number or another frequent word that is no noun."""
    return word in _OTHER_WORDS


_NOUNS = word_set("""
    bedding building ceiling clothing crossing drawing dressing dumpling duckling earring
    evening flooring frosting icing king landing lighting lightning morning painting pudding
    railing ring seating shelving sibling spring string stuffing swing topping wedding wing
    writing bed bobsled flatbed moped reed seed shed sled weed assembly belly butterfly family
    jelly lily trolley
""")
"""Nouns in -ing, -ed and -ly."""

_OTHER_WORDS = word_set("""
    two three four five six seven eight nine ten dozen half many several few more most much
    multiple various different double single lot lots bunch pair piece pieces kind kinds type
    types variety first second others

    top side sides back middle bottom end rear way atop

    black white red green blue yellow orange pink purple brown gray grey tan beige blond blonde
    dark bright pale colorful

    able adult alone american antique asian asleep bare beautiful big blurry broken busy calm
    clean clear close cloudy cold commercial cool cute dead decorative deep delicious dirty dry
    elderly electric electronic empty fake fancy female flat fresh full fun furry giant good
    grassy great happy hard heavy high hot huge indoor large little lone long low lush male
    messy metal modern muddy naked narrow neat adorable classic comfortable fast formal funny
    odd own personal rusty smart stainless visible whole new nice old older open opposite ornate
    outdoor partial plain plastic polar pretty professional public rainy ready residential ripe
    rocky rough round rural sandy shallow shiny shirtless short silver similar small smaller
    snowy soft steep still sunny tall thick thin tiny tropical upright urban vintage warm wet
    wide wild wooden young younger

    ahead almost apart backward backwards downhill forward how indoors like outdoors overhead
    upside well even not

    appear appears attach bite bites blow blows brush brushes carries carry catch catches climb
    climbs come comes contain contains cook cooks cover covers cross crosses cut cuts drawn
    drinks drive drives eat eats enjoy eaten enjoys fallen feature features fill flies fly
    gather get gets give gives go goes grab grabs graze grazes hang hangs held hit hits hold
    holds include includes jump jumps kick kicks laid lay lays lead leads lean leans leap leaps
    let lie lies lift lifts lit look looks made make makes move moves pass passes perform
    performs pet pets play plays pose poses prepare prepares produce pull pulls push pushes put
    puts reach reaches read reads ride rides run runs say says see seen serve serves set sets
    share shares show shown shows sit sits sleep sleeps slide smile smiles stand stands stare
    stares stop stops swim swims swings take taken takes talk talks throw throws touch touches
    travel travels try tries turn turns use uses wait waits walk walks watch watches wear wears
    work works
""")
"""Words frequent in captions that are mostly no nouns there, or say nothing as a keyword.

A paragraph each: quantities, parts of a place, colours, other adjectives, adverbs, and verbs, with
forms that are rarely nouns in captions.
"""
