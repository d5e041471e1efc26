"""Small captioners and translators, photos, shards, and files of COCO."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from translation_samples import CONFIGS

from captioner.backends.torch_captions import TorchCaptions
from captioner.backends.torch_translations import TorchTranslations, make_model
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import ConfidenceWeights
from captioner.decoding.options import SearchOptions, TranslationSearch
from captioner.library import Library, Words
from captioner.library.merge import Merged, merged
from captioner.library.xmp import Packet
from captioner.model_folders import file_digest
from captioner.models.caption_config import DecoderConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.text import Vocabulary, WordVocabulary
from captioner.translate.translator import Translator
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig
from captioner.vision.preprocessing import Preprocessing

Refused = Callable[[Sequence[str]], str]  # The types of fixtures.
Give = Callable[[bytes], None]
Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

CAPTION = ["caption", "--model", "tiny-model"]

WORDS = ["a", "brown", "dog", "man", "on", "red", "runs", "the", "two", "water"]


COSTS = ("seconds", "total_seconds", "examples_per_second", "memory")


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The records of a log but what makes the run, and without its costs, which vary."""
    return [
        {name: value for name, value in record.items() if name not in COSTS}
        for record in map(json.loads, (folder / "log.jsonl").read_text().splitlines())
        if "run" not in record
    ]


def change_config(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the config of a model folder in place."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def renew_digests(folder: Path, *names: str) -> None:
    """Give the config of a model folder the digests of these files as they are now."""
    digests = {name: file_digest(folder / name) for name in names}
    change_config(folder, lambda config: config["files"].update(digests))


def make_captioner(
    seed: int = 0, standardise: bool = False, words: Sequence[str] = WORDS
) -> Captioner:
    """A captioner with random weights: 64x64 photos, a 4x4 map."""
    torch.manual_seed(seed)
    vocabulary = Vocabulary(words)
    sizes = DecoderConfig(
        embedding_size=8, hidden_size=12, attention_size=8, standardise=standardise
    )
    decoder = ShowAttendTellDecoder(sizes, len(vocabulary))
    for parameter in decoder.parameters():  # Far enough from zero for photos to matter.
        torch.nn.init.normal_(parameter, std=0.5)
    networks = TorchCaptions(
        VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05)),
        decoder,
        vocabulary,
        Preprocessing(size=64, resize="crop", resize_shorter=72),
    )
    search = SearchOptions(beam=3, maximum_length=6, minimum_length=2)
    return Captioner(networks, search, card="# A model of random weights")


def confidence_weights(*values: float) -> ConfidenceWeights:
    return ConfidenceWeights(**dict(zip(ConfidenceWeights.model_fields, values, strict=True)))


def assert_same_captions(found: Sequence[Caption], expected: Sequence[Caption]) -> None:
    """The same words; numbers may differ by rounding, which depends on where weights lie."""
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.text, ours.words) == (theirs.text, theirs.words)
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
        assert ours.word_log_probabilities == pytest.approx(theirs.word_log_probabilities, abs=1e-4)
        np.testing.assert_allclose(ours.attention, theirs.attention, rtol=1e-3, atol=1e-5)
        assert ours.confidence == pytest.approx(theirs.confidence, abs=1e-4)
        scores = [
            [-1 if score is None else score for score in each.word_confidence or ()]
            for each in (ours, theirs)
        ]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        assert (ours.region, ours.sure) == (theirs.region, theirs.sure)
        assert_same_captions(ours.alternatives, theirs.alternatives)


def photo(seed: int = 0, size: tuple[int, int] = (120, 90)) -> Image.Image:
    """A photo of coarse random colours."""
    colours = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.BICUBIC)


def photo_bytes(
    seed: int = 0, size: tuple[int, int] = (120, 90), kind: str = "PNG", **options: Any
) -> bytes:
    """The file of such a photo."""
    buffer = io.BytesIO()
    photo(seed, size).save(buffer, kind, **options)
    return buffer.getvalue()


def save_photo(path: Path, seed: int = 0, size: tuple[int, int] = (120, 90)) -> Path:
    """Write such a photo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(seed, size).save(path)
    return path


def exiftool(*arguments: str | Path) -> dict[str, Any]:
    """What exiftool reads in a file, by group and name, without captioner's copies."""
    command = ["exiftool", "-json", "-G1", "-XMP:all", "-IPTC:all", *arguments]
    (record,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    own = ("SourceFile", "XMP-captioner")
    return {name: value for name, value in record.items() if not name.startswith(own)}


def write_xmp(path: Path, words: Words, overwrite: bool = False) -> Merged:
    """Merge words into a sidecar, of a photo that no person described."""
    packet = Packet(path.read_bytes() if path.exists() else None, f"{path}")
    done = merged(packet, words, overwrite, keywords_only=False)
    if packet.update(done.properties):
        path.write_bytes(packet.content)
    return done


def xmp_texts(content: bytes | Path, name: str) -> list[str]:
    """The texts of a property, such as `dc:subject`, in a packet or a sidecar."""
    content = content.read_bytes() if isinstance(content, Path) else content
    return [text for _, text in Packet(content, "it").properties.get(name, ())]


def words_of_person(photo: Path) -> str:
    """The description of a photo by a person, whether captioner wrote it or not; "" if none."""
    library = Library()
    return next((each.text for each in library.said(str(photo)) if each.by != "captioner"), "")


def xmp_packet(properties: str) -> bytes:
    """A packet with these properties, as another program writes it."""
    return (
        "<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF "
        "xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'><rdf:Description "
        "xmlns:tiff='http://ns.adobe.com/tiff/1.0/' xmlns:dc='http://purl.org/dc/elements/1.1/'"
        f">{properties}</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def own_packet(words: Words) -> bytes:
    """A packet as captioner writes it into a photo."""
    packet = Packet(None, "new")
    packet.update(merged(packet, words, overwrite=False, keywords_only=False).properties)
    return packet.content


def save_described(path: Path, xmp: bytes = b"", **tags: Any) -> Path:
    """A photo with a packet, EXIF's ImageDescription, XPComment and UserComment, and PNG's text."""
    exif, text = Image.Exif(), PngInfo()
    exif.endian = tags.get("endian", "<")
    for number, name in ((0x010E, "description"), (0x9C9C, "comment")):
        if name in tags:
            exif[number] = tags[name]
    if "user" in tags:
        exif[0x8769] = {0x9286: tags["user"]}
    if xmp and path.suffix == ".tif":
        exif[700] = xmp
    elif xmp:
        text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    if "png" in tags:
        text.add_text("Description", tags["png"])
    Image.new("RGB", (40, 30), "red").save(path, exif=exif, pnginfo=text, xmp=xmp)
    return path


def imported(code: str, *names: str) -> list[str]:
    """Which of these modules a fresh Python has imported after running the code."""
    script = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print(*({set(names)} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


def write_captions(
    path: Path, captions: Mapping[int, Sequence[str]], file_name: str = "{}.png"
) -> Path:
    """Write the captions of each photo, numbered in order."""
    pairs = [(number, text) for number, texts in captions.items() for text in texts]
    document = {
        "info": {},
        "images": [{"id": number, "file_name": file_name.format(number)} for number in captions],
        "annotations": [
            {"id": place, "image_id": number, "caption": text}
            for place, (number, text) in enumerate(pairs)
        ],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_instances(
    path: Path,
    things: Mapping[int, Sequence[str]],
    categories: Sequence[str],
    size: tuple[int, int] = (9, 9),
    box: Sequence[int] | None = None,
    file_name: str = "{}.png",
) -> Path:
    """Write what is in each photo, all of it in one box, by default the whole photo."""
    document: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": []}
    numbers = {name: number for number, name in enumerate(categories, start=1)}
    document["categories"] = [{"id": number, "name": name} for name, number in numbers.items()]
    seen = {"width": size[0], "height": size[1]}
    for image, names in things.items():
        document["images"].append({"id": image, "file_name": file_name.format(image), **seen})
        for name in names:
            thing = {"id": len(document["annotations"]), "image_id": image, "iscrowd": 0}
            thing |= {"category_id": numbers[name], "bbox": list(box or (0, 0, *size))}
            document["annotations"].append(thing)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_tar(path: Path, members: Mapping[str, bytes | str], **options: Any) -> Path:
    """Write a tar of files, by name; a text is a symbolic link's target, after "hard:" a hard's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type = tarfile.LNKTYPE if content.startswith("hard:") else tarfile.SYMTYPE
                info.linkname = content.removeprefix("hard:")
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def write_parquet(path: Path, columns: Mapping[str, list[Any]], rows_of_group: int = 3) -> Path:
    """Write a table in row groups."""
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(dict(columns)), path, row_group_size=rows_of_group)
    return path


def make_translator(sentences: Iterable[str], name: str = "dot") -> Translator:
    """A translator with its initial weights, of six tokens at most, that knows these words."""
    words = WordVocabulary.learn(sentences, 1)
    torch.manual_seed(0)
    model = make_model(CONFIGS[name], len(words), len(words))
    search = TranslationSearch(beam=3, maximum_length=5)
    return Translator(TorchTranslations(CONFIGS[name], model, words, words), 6, search)


@contextmanager
def interrupted_after(renames: int, monkeypatch: Patch) -> Iterator[None]:
    """So many files get another name in the block, and the next one an interrupt."""
    left, real = [*range(renames)], os.rename

    def rename(*paths: Path) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real(*paths)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        yield
