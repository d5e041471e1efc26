"""The sink of words about photos: in sidecars and texts beside them, and in themselves."""

from collections.abc import Mapping

from captioner.errors import UserError
from captioner.library import Library, Places, Words
from captioner.model_folders import DEMO_PHOTO
from captioner.outputs.known_photos import note_state
from captioner.outputs.lines import formatted_caption
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.text.languages import ENGLISH


class Descriptions(Sink):
    """Writes captions and keywords as --xmp, --text and --embed say.

    In any thread, as flushing files takes the time; exiftool writes one after the other.
    """

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        are_files = all(isinstance(source, str) for source in run.photos.values())
        if not are_files or str(DEMO_PHOTO) in run.photos:
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        options = run.options
        places = Places(sidecar=options.xmp, text=options.text, embed=options.embed)
        self.takes_any_order = not options.embed
        self._library = Library(places, options.overwrite_descriptions, options.dry_run, run.photos)

    def files(self, photo: str) -> Mapping[str, str]:
        """Where the words about a photo go."""
        return self._library.files(photo)

    def is_finished(self, photo: str) -> bool:
        """Whether the photo has a text."""
        return self._library.has_text(photo)

    def has(self, record: PhotoRecord) -> bool:
        """Whether the words of a record are there; a person may have changed them since."""
        if record.image not in self.run.photos:  # Of an earlier run.
            return True
        is_changed = record.is_by_person and record.written != record.caption
        return super().has(record) and not is_changed

    def add(self, record: PhotoRecord) -> None:
        """Write the words of a record, unless they are there as its table says."""
        is_failed = record.error and not record.made  # It may be another photo now.
        if is_failed or not record.caption.strip() or (record.saved and self.has(record)):
            return
        options = self.run.options
        written = self._library.write(record.image, words_of(record, options))
        record.described = written
        for sentence in written.notes if options.dry_run or not options.quiet else ():
            self.run.report(sentence)
        if written.files:
            record.files = {**record.files, **written.files}
        if written.files and record.is_by_person:
            record.written = record.caption
        if "embed" in written.files:
            note_state(record, record.image)
        for problem in written.problems:
            record.add_problem(problem)

    def close(self) -> None:
        """End exiftool."""
        self._library.__exit__()


def words_of(record: PhotoRecord, options: OutputOptions) -> Words:
    """What is written of a record; --describe none leaves the caption out."""
    caption = record.to_caption().with_keywords(options.keywords)
    return Words(
        caption=caption.text if options.describe == "caption" else "",
        keywords=caption.keywords,
        language=caption.language or ENGLISH,
        confidence=None if record.is_by_person else caption.shown_confidence,
        by_person=record.is_by_person,
        text=options.format and formatted_caption(options.format, record.image, caption).strip(),
        photo_digest=record.photo_digest,
        own_texts=[*record.by_model, record.written, *record.own_texts],
    )
