"""Readers of captioned photos.

- COCO, 2014 and 2017 (Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation
  Server*).
- Karpathy's splits of COCO, Flickr8k and Flickr30k (Karpathy and Fei-Fei 2015, *Deep
  Visual-Semantic Alignments for Generating Image Descriptions*).
- Flickr8k and Flickr30k (Hodosh, Young and Hockenmaier 2013, *Framing Image Description as a
  Ranking Task*; Young et al. 2014, *From image descriptions to visual denotations*).
"""

import os
import posixpath
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from pydantic import FailFast
from typing_extensions import NotRequired, TypedDict

from captioner.data import table
from captioner.data.example import (
    TRAIN,
    Collector,
    Example,
    Problems,
    SourcePhoto,
    Splits,
    meant_split,
)
from captioner.errors import UserError
from captioner.files import existing_path, read_json, read_text
from captioner.schema import Id, Records, Text, from_mapping
from captioner.vision.shards import SHARD_SUFFIXES

_FOLDER = re.compile(r"(?:train|val|test)20\d\d")
_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test)(?:20\d\d)?(?![a-z0-9])")
_LINE = re.compile(r"(?s)\s*(?P<image>[^\t]*\S)\s*#(?P<number>[0-9]{1,9})\t(?P<caption>.*)")
_LISTS = {"train": "train", "val": "dev", "test": "test"}  # As in Flickr_8k.devImages.txt.


def format_of(path: Path) -> str | None:
    """The format of captions by their content, of `READERS`; None of what is none of `KNOWN`."""
    suffix = path.suffix.lower()
    if os.path.isdir(path) or suffix in (".csv", ".tsv", ".jsonl", *SHARD_SUFFIXES):
        return "table"
    if suffix in (".yaml", ".yml"):
        return None
    with suppress(UserError):  # The format's reader says what is wrong.
        text = read_text(path).lstrip()
        first = text.partition("\n")[0]
        if "\t" in first and _LINE.fullmatch(first):  # COCO's whole file is a line.
            return "flickr8k"
        document = table.parsed(text)
        if isinstance(document, dict) and isinstance(document.get("images"), list):
            return "coco" if "annotations" in document else "karpathy"
        next(table.text_records(path, Problems()), None)
        return "table"
    return None


def read_splits(
    format: str | None,
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    splits: Splits = (None,),
    problems: Problems | None = None,
    check_files: bool = True,
) -> list[list[Example]]:
    """Read splits of a data set on disk, none of them empty; one error has all problems.

    format: None for that of `format_of`, else coco. images: the folder of the photos; by default
        that of the annotations. check_files: whether the photos must exist.
    splits: as for `Collector.examples`, by any of their names.
    """
    file = Path(annotations)
    own_folder = file if os.path.isdir(file) else file.parent
    file_format = format or format_of(file)
    if file_format is None and os.path.isfile(file):
        if file.suffix.lower() == ".json":
            read_json(file, "caption file")  # A damaged one is named as such.
        raise UserError(f"{file} is not recognised as captions: they are {table.KNOWN}")
    given = None if images is None else Path(images)
    collector = Collector(Problems() if problems is None else problems, check_files, given)
    names = [*map(meant_split, splits)]
    READERS[file_format or "coco"](file, given or own_folder, names, collector)
    return collector.examples(names)


class _Image(TypedDict):
    id: Id
    file_name: Text


class _Caption(TypedDict):
    id: Id
    image_id: Id
    caption: Text


class _CaptionFile(Records):
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Caption], FailFast()]


def read_coco(annotations: Path, images: Path, splits: Splits, collector: Collector) -> None:
    """Read caption files of COCO.

    annotations: a JSON file, or a folder with `captions_SPLIT.json`, also in `annotations/`.
    images: the folder of the photos, or of `train2014`, `val2017` and so on.
    splits: train, val or test, or with the year, train2014. A file is one split, unless its name
        says none or several are asked for; its name may not say another.
    """
    collector.problems.source = f"captions {annotations}"
    files = {}
    if not os.path.isdir(annotations):
        files[_split_of(annotations, splits)] = annotations
    elif None in splits:
        raise UserError(f"{annotations} is a folder, so the split to read must be named")
    else:
        for split in splits:
            name = f"captions_{split}.json"
            files[split] = _first_file(annotations, name, f"annotations/{name}")
    folder_of = cache(partial(_image_folder, images))
    place_of = cache(lambda folder: Path(os.path.relpath(folder, images)).as_posix())
    for split, file in files.items():
        where = f"caption file {file}"
        document = from_mapping(_CaptionFile, read_json(file, "caption file"), where)
        named = _SPLIT.findall(file.name)
        for image in document.images:
            name = image["file_name"].replace("\\", "/")  # As Windows writes it.
            folder = folder_of(*_FOLDER.findall(name)[:1], split, *named)
            record = f"image {image['id']}"
            # Drawn splits depend neither on ids nor on the place of the photos.
            drawn_by = posixpath.normpath(f"{place_of(folder)}/{name}")
            collector.add(SourcePhoto(image["id"], folder / name, record, split, drawn_by))
        for entry in document.annotations:
            collector.add_caption(entry["image_id"], entry["caption"], f"annotation {entry['id']}")


def _split_of(file: Path, splits: Splits) -> str | None:
    """The split of all photos in a file of COCO; None if splits are drawn or none is wanted."""
    named = _SPLIT.findall(file.name)
    split = splits[0]
    if len(splits) > 1 or split is None or not named:
        return None
    are_alike = (name.startswith(split) or split.startswith(name) for name in named)
    if not (_SPLIT.fullmatch(split) and any(are_alike)):
        raise UserError(f"caption file {file} is of the split {named[0]!r}, not {split!r}")
    return split


class _Sentence(TypedDict):
    raw: Text


class _Entry(TypedDict):
    filename: Text
    split: Text
    sentences: list[_Sentence]
    cocoid: NotRequired[Id]
    filepath: NotRequired[Text]


class _SplitFile(Records):
    images: Annotated[list[_Entry], FailFast()]


def read_karpathy(annotations: Path, images: Path, splits: Splits, collector: Collector) -> None:
    """Read Karpathy's splits, a JSON file: train, val, test and, for COCO, restval.

    "train" includes restval, the rest of COCO's validation set, unless that is asked for.
    `image_id` is COCO's id, else the file name.
    """
    where = collector.problems.source = f"split file {annotations}"
    document = from_mapping(_SplitFile, read_json(annotations, "split file"), where)
    folder_of = cache(partial(_image_folder, images))
    for number, entry in enumerate(document.images):
        file_name, split = entry["filename"], entry["split"]
        image_id = entry.get("cocoid", file_name)
        record = f"image {file_name} (record {number})"
        if split == "restval" and split not in splits:
            split = TRAIN
        path = folder_of(entry.get("filepath")) / file_name
        if collector.add(SourcePhoto(image_id, path, record, split)):
            for place, sentence in enumerate(entry["sentences"]):
                collector.add_caption(image_id, sentence["raw"], f"sentence {place} of {record}")


def read_flickr8k(annotations: Path, images: Path, splits: Splits, collector: Collector) -> None:
    """Read a token file: lines of `name.jpg#N`, a tab and a caption.

    splits: a file with one image name a line; or train, val or test, with the list beside the token
        file (`Flickr_8k.trainImages.txt` or `train.txt`); None: every image.
    """
    problems = collector.problems
    problems.source = f"token file {annotations}"
    lines = table.numbered_lines(read_text(annotations, "token file"))
    for split in filter(None, splits):
        listed = Path(split)
        if split in _LISTS:
            usual = f"Flickr_8k.{_LISTS[split]}Images.txt"
            listed = _first_file(annotations.parent, usual, f"{split}.txt")
        problems.source += f" with split list {listed}"
        for number, line in table.numbered_lines(read_text(listed, "split list")):
            name = line.strip()
            record = f"image {name} (line {number} of {listed})"
            collector.add(SourcePhoto(name, images / name, record, split))
    for number, line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            problems.add("row without NAME#NUMBER, a tab and a caption", f"line {number}")
            continue
        name = match["image"]
        if None in splits and name not in collector:
            collector.add(SourcePhoto(name, images / name, f"image {name} (line {number})"))
        if name in collector:
            record = f"caption {name}#{match['number']} (line {number})"
            collector.add_caption(name, match["caption"], record)


def _first_file(folder: Path, *names: str) -> Path:
    """The first of these that exists, else the last."""
    return next(filter(Path.is_file, (folder / name for name in names)), folder / names[-1])


def _image_folder(images: Path, *names: str | None) -> Path:
    """The first existing sub-folder of `images` with one of these names, else `images`."""
    folders = (existing_path(images / name) for name in names if name)
    return next(filter(os.path.isdir, folders), images)


READERS: dict[str, Callable[[Path, Path, Splits, Collector], None]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr8k": read_flickr8k,
    "table": table.read_table,
}
"""By format; each takes annotations, images and splits, and fills a `Collector`."""
