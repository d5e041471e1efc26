"""The nouns of an English caption, found without a tagger."""

from __future__ import annotations

from collections.abc import Sequence

from captioner.text.function_words import FUNCTION_WORDS, word_set


def nouns(words: Sequence[str]) -> list[str]:
    """The distinct words of a caption that are likely nouns, in order.

    These are its words without function words, the verbs, adjectives and numbers frequent in
    captions, and words in -ing, -ed and -ly that are not known as nouns. A rarer verb or adjective
    passes for a noun.

    words: from `tokenize`.
    """
    return [word for word in dict.fromkeys(words) if is_noun(word)]


def is_noun(word: str) -> bool:
    """Whether a word of a caption is likely a noun."""
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
