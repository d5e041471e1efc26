"""The gate: reads, writes and takes out words about photos, one photo after the other."""

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import Self

from captioner.library.words import Places, Said, Undone, Words, Written


class Library:
    """Photos with the words in them and beside them; a context manager, which ends exiftool.

    Threads may share it. It keeps nothing of a photo, but the names of the folders it saw last.

    photos: all of a run, to find those that would share a sidecar or text: they get none.
    overwrite: replace people's words, of which copies are kept.
    dry_run: change nothing; `Written.notes` and `Undone.notes` say what would change.
    notes: sentences about the photos of the run, for people; said once.

    Raises `UserError` if `places.embed` and exiftool is not there.
    """

    def __init__(
        self,
        places: Places = Places(),  # noqa: B008 (it is frozen)
        overwrite: bool = False,
        dry_run: bool = False,
        photos: Iterable[str] = (),
    ) -> None:
        self.notes: Sequence[str] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End exiftool."""

    def said(self, photo: str) -> Said:
        """The words in and beside a photo. Raises `UserError` if a part cannot be read."""
        raise NotImplementedError

    def files(self, photo: str) -> Mapping[str, str]:
        """Where its words go, by option: `xmp`, `text`, `embed` (the photo itself)."""
        raise NotImplementedError

    def has_text(self, photo: str) -> bool:
        """Whether there is a text beside a photo: an empty one is none."""
        raise NotImplementedError

    def write(self, photo: str, words: Words, own_texts: Sequence[str] = ()) -> Written:
        """Write words where the places say; a person's description stays, and gets keywords alone.

        Problems are in the result; nothing is raised. Words without a caption write nothing.

        own_texts: captions and lines that records say captioner wrote for this photo or for the one
            that had its name: a text that equals one, or has it behind another trigger word, is
            replaced.
        """
        raise NotImplementedError

    def undo(self, photo: str, words: Words | None = None) -> Undone:
        """Take out what captioner wrote and nobody changed since, in all places.

        The words of people that it had replaced come back.

        words: what a table says was written for the photo: such a text goes, if a model wrote it,
            or if there is a copy of the one before.
        """
        raise NotImplementedError

    def follow(self, moved: Mapping[str, str]) -> Sequence[str]:
        """Rename sidecars and texts with photos that were renamed, all at once (they may swap).

        A file of a photo that is gone and stands in the way is removed if captioner wrote all of
        it; else it gets the ending `.orphaned`. Returns a sentence about each of those, and about
        each file that could not follow.

        moved: new names by old ones.
        """
        raise NotImplementedError

    def remove_orphan(self, photo: str) -> bool:
        """Remove the sidecar of a photo that is gone, if captioner made it and wrote all of it.

        It stays where another file has the photo's name, but for the ending.
        """
        raise NotImplementedError
