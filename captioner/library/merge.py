"""Captions in the values of a packet: whose words are whose, merged and taken out again.

`captioner:description` and `captioner:subject` are copies of what captioner wrote, by which it
knows that again; `captioner:before_*` are the words of people that it replaced, and
`captioner:photo_digest` says whose a sidecar is.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from captioner.library.cameras import by_people
from captioner.library.words import OPTION, Words, Writer
from captioner.library.xmp import (
    ALT_TEXT,
    EXIF_COPIES,
    EXTENSION,
    SUBJECT,
    XMP_DESCRIBING,
    Entry,
    Packet,
    Properties,
)

MADE = "captioner:made"
"""Marks a packet that captioner made: only such a one is removed."""
_DIGEST = "captioner:photo_digest"

IPTC_CAPTION, IPTC_KEYWORDS = "iptc:Caption-Abstract", "iptc:Keywords"
ELSEWHERE = "photo:texts"
_LONGEST = {IPTC_CAPTION: 2000, IPTC_KEYWORDS: 64}  # Bytes (IPTC's IIM 4.2, 2:120 and 2:25).
_DESCRIBING = (*XMP_DESCRIBING, IPTC_CAPTION)
_WRITTEN = ("dc:description", ALT_TEXT, IPTC_CAPTION)
_CUT = "IPTC has room for the beginning of the caption alone"
_NOT_UTF8 = "IPTC is not in UTF-8 there, lacks letters of the caption, and gets none"
_CUT_KEYWORDS = "IPTC lacks room, or letters as it is not in UTF-8, for the keywords"
_OWN, _OWN_SUBJECT, _BY = "captioner:description", "captioner:subject", "captioner:by"


@dataclass
class Merged:
    """The new values of a packet, and what merging did to the old ones.

    words: that are captioner's now; by an undo, those that it took out. replaced: words of people,
        of which the packet has a copy. notes: for people.
    """

    old: Properties
    properties: dict[str, Sequence[Entry]]
    words: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def described(packet: Packet) -> Mapping[str, Writer]:
    """All that describes the photo, but by cameras, and who wrote it; the first counts most."""
    own = _own_forms(packet.properties, _OWN, IPTC_CAPTION)
    writer: Writer = "table" if packet.properties.get(_BY) else "captioner"
    found: list[str] = []
    for name in (*_DESCRIBING, ELSEWHERE):
        entries = packet.properties.get(name, ())
        found += _by_people(name, sorted(entries, key=lambda entry: not _is_default(entry)))
    return {text: writer if text in own else "person" for text in found}


def merged(packet: Packet, words: Words, overwrite: bool, keywords_only: bool) -> Merged:
    """Set the caption as description and alt text for all languages, and the keywords.

    What captioner wrote and a person took out is not written again: keywords one by one, the
    description unless it overwrites.

    keywords_only: a person describes the photo, here or elsewhere: captioner's caption goes.
    """
    old = packet.properties
    done = Merged(old, dict(old))
    if old.get(_BY) and not (words.by_person or overwrite):
        return done
    is_there = any(entry[1] for entry in old.get(_WRITTEN[0], ()) if _is_default(entry))
    if old.get(_OWN) and not is_there and not overwrite:
        if not keywords_only:
            done.notes.append(f"a person took its caption out; {OPTION} writes it again")
    else:
        _set_caption(done, Words("") if keywords_only else words, overwrite)
    _set_keywords(done, words.keywords)
    if packet.is_new and done.words:
        done.properties[MADE] = [("", "sidecar")]
    if words.photo_digest and (done.properties[_OWN_SUBJECT] or done.properties.get(_OWN)):
        done.properties[_DIGEST] = [("", words.photo_digest)]
    return done


def undone(packet: Packet) -> Merged:
    """Take out what captioner wrote; the words that it replaced come back."""
    old = packet.properties
    done = Merged(old, {name: old[name] for name in old if not name.startswith("captioner:")})
    if MADE in old:
        done.properties.pop(EXTENSION, None)
    for name in (*_DESCRIBING, SUBJECT, IPTC_KEYWORDS):
        is_keyword = name in (SUBJECT, IPTC_KEYWORDS)
        own = _own_forms(old, _OWN_SUBJECT if is_keyword else _OWN, name)
        kept, gone = _parted(old.get(name, ()), own)
        if gone or name not in _WRITTEN:
            copies = {entry[0]: entry for entry in old.get(_copies_of(name), ())}
            there = {entry[0] for entry in kept}
            kept += [entry for language, entry in copies.items() if language not in there]
        done.properties[name] = kept
        done.words += gone
    return done


def is_own(packet: Packet) -> bool:
    """Whether captioner made the packet and wrote all of it, by no person."""
    packet.update(undone(packet).properties)
    return MADE in packet.properties and not packet.properties.get(_BY) and packet.is_empty


def digest_of(packet: Packet) -> str:
    """The digest of the photo whose a sidecar is; "" if it has none."""
    return "".join(texts(packet.properties, _DIGEST))


def texts(properties: Properties, name: str) -> list[str]:
    """The texts of a property."""
    return [text for _, text in properties.get(name, ())]


def _is_default(entry: Entry) -> bool:
    """Whether a text is for all languages."""
    return entry[0].lower() in ("", "x-default")


def _by_people(name: str, entries: Sequence[Entry]) -> list[str]:
    return by_people([text for _, text in entries], is_exif=name in EXIF_COPIES)


def _copies_of(name: str) -> str:
    return f"captioner:before_{name.split(':')[1]}"


def _fitted(text: str, name: str, properties: Properties) -> str:
    """The beginning of a text that a place has room for; "" if it lacks letters of the text."""
    if name not in _LONGEST:
        return text
    if _has_iptc(properties) and texts(properties, "iptc:CodedCharacterSet") != ["UTF8"]:
        try:
            text.encode("cp1252")
        except UnicodeError:
            return ""
    return text.encode(errors="ignore")[: _LONGEST[name]].decode(errors="ignore").rstrip()


def _own_forms(properties: Properties, own_name: str, name: str) -> set[str]:
    """Captioner's texts as they are, and as IPTC has them."""
    own = texts(properties, own_name)
    return {*own, *(_fitted(text, name, properties) for text in own)}


def _parted(entries: Sequence[Entry], own: Collection[str]) -> tuple[list[Entry], list[str]]:
    """The entries of others, and captioner's texts."""
    gone = [text for _, text in entries if text in own]
    return [entry for entry in entries if entry[1] not in own], gone


def _set_caption(done: Merged, words: Words, overwrite: bool) -> None:
    """Set description and alt text, or take them out.

    Words of people in other places that describe the photo go, too; a copy of each is kept.
    """
    old, new = done.old, done.properties
    forms = _own_forms(old, _OWN, IPTC_CAPTION)
    fitted = [_fitted(text, IPTC_CAPTION, old) for text in texts(old, _OWN)]
    was_in_iptc = _has_iptc(old) and any(fitted)
    for name in _DESCRIBING:
        others, own = _parted(old.get(name, ()), forms)
        found = _by_people(name, others)
        is_place = name in _WRITTEN and (name in old or name != IPTC_CAPTION)
        if not words.caption or not (is_place or found):
            new[name] = others
            continue
        new[_copies_of(name)] = [*dict.fromkeys([*old.get(_copies_of(name), ()), *others])]
        done.replaced += [text for text in found if text != words.caption]
        caption = _fitted(words.caption, name, old) if is_place else ""
        if name == IPTC_CAPTION and was_in_iptc and not (own or others or overwrite):
            caption = ""  # What a person took out of IPTC alone is not written again.
        elif is_place and caption != words.caption and words.caption not in texts(old, _OWN):
            done.notes.append(_CUT if caption else _NOT_UTF8)
        language = "" if name == IPTC_CAPTION else "x-default"
        new[name] = [(language, caption)] if caption else []
    is_sure = words.confidence is not None and not words.by_person
    values = {
        "description": words.caption,
        "by": "person" if words.by_person else "",
        "language": "" if words.language.lower().startswith("en") else words.language,
        "confidence": f"{words.confidence:.2f}" if is_sure else "",
    }
    for name, value in values.items():
        new[f"captioner:{name}"] = [("", value)] if value else []
    done.words += [words.caption] if words.caption else []


def _set_keywords(done: Merged, keywords: Sequence[str]) -> None:
    """Replace the keywords that captioner wrote; the copies keep those that a person took out."""
    old, new, own = done.old, done.properties, texts(done.old, _OWN_SUBJECT)
    forms = _own_forms(old, _OWN_SUBJECT, IPTC_KEYWORDS)
    there, in_iptc = {*texts(old, SUBJECT)}, {*texts(old, IPTC_KEYWORDS)}
    taken_out = [word for word in own if word not in there]
    others = (there | in_iptc).difference(forms).union(taken_out)
    by_others = {word.casefold() for word in others}
    written = [word for word in dict.fromkeys(keywords) if word.casefold() not in by_others]
    new[SUBJECT] = [*_parted(old.get(SUBJECT, ()), forms)[0], *(("", word) for word in written)]
    if IPTC_KEYWORDS in old:
        fitted = {word: _fitted(word, IPTC_KEYWORDS, old) for word in (*own, *written)}
        cut = ", ".join(word for word in written if word not in (*own, fitted[word]))
        if cut:
            done.notes.append(f"{_CUT_KEYWORDS} {cut}")
        gone = {word for word in own if _has_iptc(old) and fitted[word] not in in_iptc}
        added = [("", fitted[word]) for word in written if fitted[word] and word not in gone]
        new[IPTC_KEYWORDS] = [*_parted(old[IPTC_KEYWORDS], forms)[0], *added]
    new[_OWN_SUBJECT] = [("", word) for word in (*taken_out, *written)]
    done.words += written


def _has_iptc(properties: Properties) -> bool:
    return any(properties[name] for name in properties if name.startswith("iptc:"))


def iptc_changes(old: Properties, new: Properties) -> list[str]:
    """exiftool's options for other values of IPTC."""
    before, after = texts(old, IPTC_KEYWORDS), texts(new, IPTC_KEYWORDS)
    added = [word for word in after if word not in before]
    gone = [word for word in before if word not in after]
    options = [f"-IPTC:Keywords-={word}" for word in (*gone, *added)]
    options += [f"-IPTC:Keywords+={word}" for word in added]
    caption = "\n".join(texts(new, IPTC_CAPTION))
    if caption != "\n".join(texts(old, IPTC_CAPTION)):
        options.append(f"-IPTC:Caption-Abstract={caption}")
    headers = re.compile(".*(Version|CodedCharacterSet|Caption-Abstract|Keywords)")
    others = [name for name in old if name.startswith("iptc:") and not headers.fullmatch(name)]
    if options and not (caption or after or others):
        return ["-IPTC:all="]
    # Old texts are not recoded.
    return options if _has_iptc(old) or not options else ["-CodedCharacterSet=UTF8", *options]
