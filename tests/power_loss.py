"""What a disk may hold after its power was lost: every prefix of the writes, replayed.

Nothing is assumed of the disk but an ordered journal: a change of names may come to it at any time
after it was made, in order, and has come when a folder is flushed. The content of a file is on it
when the file was flushed; otherwise it is empty.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHANGES = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")


class Disk:
    """Records what happens to a folder while its writer runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers: dict[int, int] = {}  # By inode, which may come again for another file.
        self._count = 0
        names = self._names()
        contents = {n: (folder / name).read_bytes() for name, n in names.items() if n}
        self.moments = [(names, contents, True)]
        """Names, flushed contents, and whether the names are flushed, after each change."""

    def record(self, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
        """Run a writer, and record each change of names and each flush."""

        def recorded(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*arguments: Any, **options: Any) -> Any:
                self._add()
                result = real(*arguments, **options)
                self._add(arguments[0] if name == "fsync" else None)
                return result

            return call

        with monkeypatch.context() as patch:
            for name in CHANGES:
                patch.setattr(os, name, recorded(name))
            write()
        self._add()

    def states(self, place: Path) -> Iterator[Path]:
        """Each state that the disk may be in, as a folder in `place`, without repetitions."""
        seen: set[str] = set()
        flushed = 0
        for moment, (_, contents, is_flushed) in enumerate(self.moments):
            flushed = moment if is_flushed else flushed
            for names, _, _ in self.moments[flushed : moment + 1]:
                state = {name: contents.get(n, b"") if n else None for name, n in names.items()}
                if repr(sorted(state.items())) in seen:
                    continue
                seen.add(repr(sorted(state.items())))
                copy = place / str(len(seen))
                copy.mkdir(parents=True)
                for name, content in sorted(state.items()):
                    if content is None:
                        (copy / name).mkdir()
                    else:
                        (copy / name).write_bytes(content)
                yield copy

    def _names(self) -> dict[str, int]:
        """Paths in the folder, and the number of the file that each names; 0 for a folder."""
        inodes = {
            path.relative_to(self.folder).as_posix(): 0 if path.is_dir() else path.stat().st_ino
            for path in self.folder.rglob("*")
        }
        for inode in set(inodes.values()) - {0} - self._numbers.keys():
            self._count += 1
            self._numbers[inode] = self._count
        self._numbers = {i: n for i, n in self._numbers.items() if i in inodes.values()}
        return {name: self._numbers.get(inode, 0) for name, inode in inodes.items()}

    def _add(self, flushed: int | None = None) -> None:
        names, contents = self._names(), dict(self.moments[-1][1])
        if flushed is not None:
            number = self._numbers.get(os.fstat(flushed).st_ino)
            for name in [name for name, its in names.items() if its == number]:
                contents[names[name]] = (self.folder / name).read_bytes()
        is_folder = flushed is not None and stat.S_ISDIR(os.fstat(flushed).st_mode)
        self.moments.append((names, contents, is_folder))
