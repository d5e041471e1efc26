"""Captions in the values of a packet: whose words are whose, merged and taken out again.

`captioner:description` and `captioner:subject` are copies of what captioner wrote, by which it
knows that again; `captioner:before_*` are the words of people that it replaced.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from captioner.library.cameras import by_people
from captioner.library.words import Words, Writer
from captioner.library.xmp import (
    ALT_TEXT,
    EXIF_COPIES,
    SUBJECT,
    XMP_DESCRIBING,
    Entry,
    Packet,
    Properties,
)

OPTION = "--overwrite-descriptions"
MADE = "captioner:made"
"""Marks a packet that captioner made: only such a one is removed."""

IPTC_CAPTION, IPTC_KEYWORDS = "iptc:Caption-Abstract", "iptc:Keywords"
_LONGEST = {IPTC_CAPTION: 2000, IPTC_KEYWORDS: 64}  # Bytes (IPTC's IIM 4.2, 2:120 and 2:25).
_WRITTEN = (XMP_DESCRIBING[0], ALT_TEXT, IPTC_CAPTION)
_DESCRIBING = (*XMP_DESCRIBING, IPTC_CAPTION)
_OWN, _OWN_SUBJECT, _BY = "captioner:description", "captioner:subject", "captioner:by"


@dataclass
class Merged:
    """The new values of a packet, and what merging did.

    words: that are captioner's now; by an undo, those that it took out. replaced: words of people,
        of which the packet has a copy. notes: for people.
    """

    properties: dict[str, Sequence[Entry]]
    words: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def described(packet: Packet) -> Mapping[str, Writer]:
    """All that describes the photo, but by cameras, and who wrote it; the first counts most."""
    own = _own_forms(packet.properties, _OWN, IPTC_CAPTION)
    writer: Writer = "table" if packet.properties.get(_BY) else "captioner"
    found: list[str] = []
    for name in _DESCRIBING:
        entries = packet.properties.get(name, ())
        found += _by_people(name, sorted(entries, key=lambda entry: not _is_default(entry)))
    return {text: writer if text in own else "person" for text in found}


def own_keywords(packet: Packet) -> list[str]:
    """The keywords that captioner wrote."""
    return texts(packet.properties, _OWN_SUBJECT)


def texts(properties: Properties, name: str) -> list[str]:
    """The texts of a property."""
    return [text for _, text in properties.get(name, ())]


def merged(packet: Packet, words: Words, overwrite: bool, keywords_only: bool) -> Merged:
    """Set the caption as description and alt text for all languages, and the keywords.

    What captioner wrote and a person took out is not written again: keywords one by one, the
    description unless it overwrites.

    keywords_only: a person describes the photo, here or elsewhere: captioner's caption goes.
    """
    old = packet.properties
    done = Merged(dict(old))
    if old.get(_BY) and not (words.by_person or overwrite):
        return done
    for name in sorted(packet.odd & {SUBJECT, *XMP_DESCRIBING}):
        done.notes.append(f"{name} is neither a text nor a list, and was left alone")
    is_there = any(entry[1] for entry in old.get(_WRITTEN[0], ()) if _is_default(entry))
    if old.get(_OWN) and not is_there and not overwrite:
        if not keywords_only:
            done.notes.append(f"a person took its caption out; {OPTION} writes it again")
    elif keywords_only or _WRITTEN[0] in packet.odd:
        _withdraw(done)
    else:
        _describe(done, words, overwrite)
    _set_keywords(done, words.keywords, SUBJECT in packet.odd)
    if packet.is_new and any(done.properties.values()):
        done.properties[MADE] = [("", "sidecar")]
    return done


def undone(packet: Packet) -> Merged:
    """Take out what captioner wrote; the words that it replaced come back."""
    old = packet.properties
    done = Merged({name: old[name] for name in old if not name.startswith("captioner:")})
    own = _own_forms(old, _OWN, IPTC_CAPTION)
    for name in _DESCRIBING:
        kept, gone = _parted(old.get(name, ()), own)
        copies = {entry[0]: entry for entry in old.get(_copies_of(name), ())}
        there = {entry[0] for entry in kept}
        if gone or name not in _WRITTEN:
            kept += [entry for language, entry in copies.items() if language not in there]
        done.properties[name] = kept
        done.words += gone
    for name in (SUBJECT, IPTC_KEYWORDS):
        own = _own_forms(old, _OWN_SUBJECT, IPTC_KEYWORDS)
        done.properties[name], gone = _parted(old.get(name, ()), own)
        done.words += gone
    return done


def has_person(packet: Packet) -> bool:
    """Whether a packet holds more than captioner's words: a person's, or another program's."""
    if packet.properties.get(_BY) or packet.is_several:
        return True
    return not Packet(packet.replaced(undone(packet).properties), packet.name).is_empty


def is_own(packet: Packet) -> bool:
    """Whether captioner made the packet and wrote all of it, by no person."""
    return MADE in packet.properties and not has_person(packet)


def _is_default(entry: Entry) -> bool:
    """Whether a text is for all languages."""
    return entry[0].lower() in ("", "x-default")


def _by_people(name: str, entries: Sequence[Entry]) -> list[str]:
    return by_people([text for _, text in entries], is_exif=name in EXIF_COPIES)


def _copies_of(name: str) -> str:
    return f"captioner:before_{name.split(':')[1]}"


def _cut(text: str, name: str) -> str:
    """The beginning of a text that IPTC has room for; no letter is cut."""
    return text.encode(errors="ignore")[: _LONGEST.get(name)].decode(errors="ignore").rstrip()


def _own_forms(properties: Properties, own_name: str, name: str) -> set[str]:
    """Captioner's texts in all forms: as IPTC has them, too, in a Latin character set."""
    own = texts(properties, own_name)
    cut = [_cut(text, name) for text in own]
    return {*own, *cut, *(text.encode("cp1252", "replace").decode("cp1252") for text in cut)}


def _parted(entries: Iterable[Entry], own: Collection[str]) -> tuple[list[Entry], list[str]]:
    """The entries of others, and captioner's texts."""
    entries, own = [*entries], {*own}
    gone = [text for _, text in entries if text in own]
    return [entry for entry in entries if entry[1] not in own], gone


def _withdraw(done: Merged) -> None:
    """Remove the descriptions that captioner wrote."""
    new, own = done.properties, _own_forms(done.properties, _OWN, IPTC_CAPTION)
    for name in _DESCRIBING:
        new[name], _ = _parted(new.get(name, ()), own)
    for name in (_OWN, _BY, "captioner:confidence", "captioner:language"):
        new[name] = []


def _describe(done: Merged, words: Words, overwrite: bool) -> None:
    """Set description and alt text.

    Words of people in other places that describe the photo go, too; a copy of each is kept.
    """
    new, own = done.properties, _own_forms(done.properties, _OWN, IPTC_CAPTION)
    is_in_iptc = IPTC_CAPTION in new
    is_out_of_iptc = bool(own and _has_iptc(new)) and not (new.get(IPTC_CAPTION) or overwrite)
    for name in _DESCRIBING:
        others, _ = _parted(new.get(name, ()), own)
        found = _by_people(name, others)
        if (name not in _WRITTEN and not found) or (name == IPTC_CAPTION and not is_in_iptc):
            continue  # Only a camera's.
        copies = _copies_of(name)
        new[copies] = [*dict.fromkeys([*new.get(copies, ()), *others])]
        wanted = [("x-default" if name != IPTC_CAPTION else "", _cut(words.caption, name))]
        if name == IPTC_CAPTION and wanted not in ([("", words.caption)], new[name]):
            done.notes.append("IPTC has room for the beginning of the caption alone")
        is_written = name in _WRITTEN and not (name == IPTC_CAPTION and is_out_of_iptc)
        new[name] = wanted if is_written else []
        done.replaced += [text for text in found if text != words.caption]
    new[_OWN] = [("", words.caption)]
    new[_BY] = [("", "person")] if words.by_person else []
    is_translated = words.language.partition("-")[0].lower() != "en"
    new["captioner:language"] = [("", words.language)] if is_translated else []
    is_sure = words.confidence is not None and not words.by_person
    new["captioner:confidence"] = [("", f"{words.confidence:.2f}")] if is_sure else []
    done.words.append(words.caption)


def _set_keywords(done: Merged, keywords: Sequence[str], is_odd: bool) -> None:
    """Replace the keywords that captioner wrote; the copies keep those that a person took out."""
    new, own = done.properties, texts(done.properties, _OWN_SUBJECT)
    forms = _own_forms(new, _OWN_SUBJECT, IPTC_KEYWORDS)
    there, in_iptc = {*texts(new, SUBJECT)}, {*texts(new, IPTC_KEYWORDS)}
    taken_out = [word for word in own if word not in there]
    others = {*there, *in_iptc}.difference(forms).union(taken_out)
    by_others = {word.casefold() for word in others}
    written = [word for word in dict.fromkeys(keywords) if word.casefold() not in by_others]
    written = [] if is_odd else written
    kept, _ = _parted(new.get(SUBJECT, ()), own)
    new[SUBJECT] = [*kept, *(("", word) for word in written)]
    new[_OWN_SUBJECT] = [("", word) for word in (*taken_out, *written)]
    done.words += written
    if IPTC_KEYWORDS in new:
        gone = [word for word in own if _has_iptc(new) and _cut(word, IPTC_KEYWORDS) not in in_iptc]
        kept, _ = _parted(new[IPTC_KEYWORDS], forms)
        cut = [_cut(word, IPTC_KEYWORDS) for word in written if word not in gone]
        new[IPTC_KEYWORDS] = [*kept, *(("", word) for word in cut)]


def _has_iptc(properties: Properties) -> bool:
    return any(properties[name] for name in properties if name.startswith("iptc:"))
