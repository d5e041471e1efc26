"""The sink of shards: tars of photos with their captions, as webdataset reads them."""

import os
import posixpath
import tarfile
from collections import Counter, defaultdict
from contextlib import suppress
from io import BytesIO
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.errors import UserError
from captioner.outputs.descriptions import words_of
from captioner.outputs.drawings import output_names
from captioner.outputs.json_lines import line_of
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.vision.images import ImageSource
from captioner.vision.shards import ShardMember, files_of_tar

_Sample = dict[str, "bytes | ShardMember"]
"""Texts, and files of the source, by their names in the new tar."""


class Shards(Sink):
    """For each tar a new one of the same name: its samples, with their captions and records.

    A sample whose photos have no caption is left out. A tar is written when its last photo has a
    record: whole or not at all. Until then its texts are in memory.
    """

    takes_unsure = True  # They count as photos of the tar, and are left out.

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        self._left = Counter(_shard_of(name, photo) for name, photo in run.photos.items())
        names = output_names(self._left).values()
        targets = [os.path.join(path, f"{name}.tar") for name in names]
        self._targets = dict(zip(self._left, targets, strict=True))
        if {*map(files.real_path, targets)} & {*map(files.real_path, self._left)}:
            raise UserError(f"--shards {path} has the shards to caption; name another folder")
        may_exist = run.options.overwrite or run.options.resumes
        files.check_files([("--shards", target) for target in targets], may_exist)
        files.remove_leftovers(map(Path, targets))
        self._samples = defaultdict[str, defaultdict[str, _Sample]](lambda: defaultdict(dict))

    def is_finished(self, photo: str) -> bool:
        """Whether the new tar of a photo is there."""
        return os.path.isfile(self._targets[_shard_of(photo, self.run.photos[photo])])

    def add(self, record: PhotoRecord) -> None:
        """Keep the texts of a photo; write the tar if it was the last."""
        photo = self.run.photos.get(record.image)
        if not isinstance(photo, ShardMember):
            return  # Of a resumed table alone.
        options, is_failed = self.run.options, record.error and not record.made
        if record.caption and not is_failed and record.is_sure(options.min_confidence):
            sample = self._samples[photo.shard][_sample_of(photo)]
            stem, words = posixpath.splitext(photo.member)[0], words_of(record, options)
            if f"{stem}.txt" in sample:  # Of 1.jpg; this is 1.png.
                stem = photo.member
            sample[photo.member] = photo
            sample[f"{stem}.txt"] = words.line.encode(errors="replace")
            sample[f"{stem}.json"] = line_of(record.to_dict())
        self._left[photo.shard] -= 1
        if not self._left[photo.shard]:
            self._write(photo.shard, self._samples.pop(photo.shard, {}))

    def _write(self, shard: str, samples: dict[str, _Sample]) -> None:
        """Write a tar, unless it is there with the same files and texts."""
        new = chain.from_iterable(sample.items() for sample in samples.values())
        texts = {name: member for name, member in new if isinstance(member, bytes)}
        for file in files_of_tar(shard):  # A damaged one is refused: --resume would leave its end.
            stem, suffix = posixpath.splitext(file.member)
            sample = samples.get(_sample_of(file), {})
            is_text = stem + suffix.lower() in texts
            sample[f"{stem}.source{suffix.lower()}" if is_text else file.member] = file
        there: dict[str, ShardMember] = {}
        with suppress(UserError):
            there = {file.member: file for file in files_of_tar(self._targets[shard])}
        is_same = there.keys() == {*chain.from_iterable(samples.values())}
        if is_same and all(text == there[name].read() for name, text in texts.items()):
            return  # Also if there is no caption.
        with files.atomic_path(self._targets[shard]) as path, tarfile.open(path, "w") as tar:
            for sample in samples.values():
                for name, member in sample.items():
                    content = member if isinstance(member, bytes) else member.read()
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, BytesIO(content))


def _shard_of(name: str, photo: ImageSource) -> str:
    if isinstance(photo, ShardMember) and photo.shard.lower().endswith(".tar"):
        return photo.shard
    raise UserError(f"--shards takes photos in tars; leave out {name}, or write a table")


def _sample_of(file: ShardMember) -> str:
    """The key of a file's sample, as webdataset has it: its name up to the first point."""
    folder, name = posixpath.split(file.member)
    return posixpath.join(folder, name.partition(".")[0])
