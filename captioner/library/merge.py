"""Captions in the values of a packet: whose words are whose, merged and taken out again.

`captioner:description` and `captioner:subject` are copies of what captioner wrote, by which it
knows that again; `captioner:before_*` are the words of people that it replaced.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from captioner.library.cameras import by_people
from captioner.library.words import Words
from captioner.library.xmp import (
    ALT_TEXT,
    DESCRIBING,
    EXIF_COPIES,
    NAMESPACES,
    SUBJECT,
    Entry,
    Packet,
    Properties,
)

_WRITTEN = ("dc:description", ALT_TEXT)
_OWN, _OWN_SUBJECT = "captioner:description", "captioner:subject"
_BEFORE = "captioner:before_"
IPTC_BEFORE = f"{_BEFORE}Caption-Abstract"
MADE = "captioner:made"
"""Marks a packet that captioner made: only such a one is removed."""


@dataclass(frozen=True)
class Merged:
    """The new values of a packet, and what merging did.

    keywords: that are captioner's now. replaced: words of a person, of which the packet has a copy.
        By an undo, both are captioner's words that it took out.
    is_described: whether the caption stands there now.
    is_taken_out: a person took captioner's description out: it is not written again.
    """

    properties: Properties
    keywords: Sequence[str] = ()
    replaced: Sequence[str] = ()
    is_described: bool = False
    is_taken_out: bool = False


def texts(properties: Properties, *names: str) -> list[str]:
    """The texts of properties."""
    return [text for name in names for _, text in properties.get(name, ())]


def is_default(language: str) -> bool:
    """Whether a text of this language tag is for all languages."""
    return language.lower() in ("", "x-default")


def own_texts(packet: Packet) -> list[str]:
    """The descriptions that captioner wrote."""
    return texts(packet.properties, _OWN)


def own_keywords(packet: Packet) -> list[str]:
    """The keywords that captioner wrote."""
    return texts(packet.properties, _OWN_SUBJECT)


def is_by_person(packet: Packet) -> bool:
    """Whether captioner wrote a person's description, from a table."""
    return bool(packet.properties.get("captioner:by"))


def descriptions(packet: Packet) -> list[str]:
    """All that describes the photo, but by cameras; the text for all languages stands first."""
    found: list[str] = []
    for name in DESCRIBING:
        entries = packet.properties.get(name, ())
        found += _by_people(name, sorted(entries, key=lambda entry: not is_default(entry[0])))
    return [*dict.fromkeys(found)]


def merged(
    packet: Packet,
    words: Words,
    overwrite: bool,
    keywords_only: bool = False,
    iptc_keywords: Collection[str] = (),
) -> Merged:
    """Set the caption as description and alt text for all languages, and the keywords.

    What captioner wrote and a person took out is not written again: keywords one by one, the
    description unless it overwrites.

    keywords_only: a person describes the photo, here or elsewhere: captioner's caption goes.
    iptc_keywords: beside the packet in a photo.
    """
    old = packet.properties
    if is_by_person(packet) and not (words.by_person or overwrite):
        return Merged(old, own_keywords(packet))
    new: dict[str, Sequence[Entry]] = dict(old)
    own = own_texts(packet)
    is_there = any(text for language, text in old.get(_WRITTEN[0], ()) if is_default(language))
    is_taken_out = not overwrite and bool(own) and not is_there
    replaced: list[str] = []
    if not is_taken_out:
        for name in ("captioner:confidence", "captioner:language"):
            new.pop(name, None)
        if keywords_only or _WRITTEN[0] in packet.odd:
            keywords_only = True
            _withdraw(new, own)
        else:
            replaced = _describe(new, words, own)
    keywords = _set_keywords(new, words.keywords, iptc_keywords)
    if SUBJECT in packet.odd:
        keywords, new[_OWN_SUBJECT] = [], []
    if packet.is_new and any(new.values()):
        new[MADE] = [("", "sidecar")]
    return Merged(new, keywords, replaced, not keywords_only and not is_taken_out, is_taken_out)


def undone(packet: Packet) -> Merged:
    """Take out what captioner wrote; the words that it replaced come back."""
    old, own = packet.properties, {*own_texts(packet)}
    new: dict[str, Sequence[Entry]] = {
        name: entries for name, entries in old.items() if not name.startswith("captioner:")
    }
    taken_out: list[str] = []
    for name in DESCRIBING:
        kept, gone = _parted(old.get(name, ()), own)
        copies = {entry[0]: entry for entry in old.get(_copies_of(name), ())}
        there = {entry[0] for entry in kept}
        if gone or name not in _WRITTEN:
            kept += [entry for language, entry in copies.items() if language not in there]
        new[name] = kept
        taken_out += [text for _, text in gone]
    kept, gone = _parted(old.get(SUBJECT, ()), own_keywords(packet))
    new[SUBJECT] = kept
    return Merged(new, [text for _, text in gone], [*dict.fromkeys(taken_out)])


def is_marked(content: bytes) -> bool:
    """Whether captioner wrote into a file."""
    return NAMESPACES["captioner"].encode() in content.replace(b"\0", b"")


def has_person(packet: Packet) -> bool:
    """Whether a packet holds more than captioner's words: a person's, or another program's."""
    left = Packet(packet.replaced(undone(packet).properties), packet.name)
    return is_by_person(packet) or not left.is_empty


def is_own(packet: Packet) -> bool:
    """Whether captioner made the packet and wrote all of it, by no person."""
    return MADE in packet.properties and not has_person(packet)


def _by_people(name: str, entries: Sequence[Entry]) -> list[str]:
    return by_people([text for _, text in entries], is_exif=name in EXIF_COPIES)


def _copies_of(name: str) -> str:
    return f"{_BEFORE}{name.split(':')[1]}"


def _parted(entries: Iterable[Entry], own: Collection[str]) -> tuple[list[Entry], list[Entry]]:
    """The entries of others, and captioner's."""
    kept, gone = list[Entry](), list[Entry]()
    for entry in entries:
        (gone if entry[1] in own else kept).append(entry)
    return kept, gone


def _withdraw(new: dict[str, Sequence[Entry]], own: Sequence[str]) -> None:
    """Remove the descriptions that captioner wrote."""
    for name in DESCRIBING:
        new[name], _ = _parted(new.get(name, ()), own)
    new[_OWN] = new["captioner:by"] = []


def _describe(new: dict[str, Sequence[Entry]], words: Words, own: Sequence[str]) -> list[str]:
    """Set description and alt text; returns the words of people that they replace.

    Words in other places that describe the photo go, too; a copy of each is kept.
    """
    replaced: list[str] = []
    for name in DESCRIBING:
        others, _ = _parted(new.get(name, ()), own)
        is_written = name in _WRITTEN
        found = _by_people(name, others)
        if not is_written and not found:
            continue  # Only a camera's.
        replaced += found
        copies = _copies_of(name)
        new[copies] = [*dict.fromkeys([*new.get(copies, ()), *others])]
        new[name] = [("x-default", words.caption)] if is_written else []
    new[_OWN] = [("", words.caption)]
    new["captioner:by"] = [("", "person")] if words.by_person else []
    is_translated = words.language.partition("-")[0].lower() != "en"
    new["captioner:language"] = [("", words.language)] if is_translated else []
    is_sure = words.confidence is not None and not words.by_person
    new["captioner:confidence"] = [("", f"{words.confidence:.2f}")] if is_sure else []
    return [text for text in dict.fromkeys(replaced) if text != words.caption]


def _set_keywords(
    new: dict[str, Sequence[Entry]], keywords: Sequence[str], iptc_keywords: Collection[str]
) -> list[str]:
    """Replace the keywords that captioner wrote; returns those written.

    The copies keep those that a person took out.
    """
    subjects, own = texts(new, SUBJECT), texts(new, _OWN_SUBJECT)
    taken_out = [word for word in own if word not in subjects]
    others = {*subjects, *iptc_keywords}.difference(own).union(taken_out)
    by_others = {word.casefold() for word in others}
    written = [word for word in dict.fromkeys(keywords) if word.casefold() not in by_others]
    kept, _ = _parted(new.get(SUBJECT, ()), own)
    new[SUBJECT] = [*kept, *(("", word) for word in written)]
    new[_OWN_SUBJECT] = [("", word) for word in chain(taken_out, written)]
    return written
