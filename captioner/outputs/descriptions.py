"""The sink of words about photos: in sidecars and texts beside them, and in themselves."""

from collections.abc import Mapping
from dataclasses import replace

from captioner.errors import UserError
from captioner.library import Library, Places, Words
from captioner.model_folders import DEMO_PHOTO
from captioner.outputs.lines import formatted_caption
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.text.languages import ENGLISH


class Descriptions(Sink):
    """Writes captions and keywords as --xmp, --text and --embed say."""

    is_incremental = True

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        are_files = all(isinstance(source, str) for source in run.photos.values())
        if not are_files or str(DEMO_PHOTO) in run.photos:
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        options = run.options
        places = Places(sidecar=options.xmp, text=options.text, embed=options.embed)
        overwrite, dry_run = options.overwrite_descriptions, options.dry_run
        self.library = Library(places, overwrite, dry_run, run.photos)
        self._replaced = 0
        for sentence in self.library.notes:
            run.report(sentence)

    def files(self, photo: str) -> Mapping[str, str]:
        """Where the words about a photo go."""
        return self.library.files(photo)

    def add(self, record: PhotoRecord) -> None:
        """Write the words of a record, unless they are there as its table says."""
        if not record.caption.strip() or (record.saved and self.has_files(record)):
            return
        options = self.run.options
        words, own_texts = words_of(record, options), [*record.written_texts, *record.own_texts]
        if options.format:
            caption, form = record.to_caption(), options.format
            versions = [replace(caption, text=text) for text in own_texts]
            own_texts += [formatted_caption(form, record.image, each).strip() for each in versions]
        written = record.described = self.library.write(record.image, words, own_texts)
        for sentence in written.notes:
            (self.run.report if options.dry_run else self.run.note)(sentence)
        self._replaced += bool(written.replaced)
        if written.files:
            record.files = {**record.files, **written.files}
        if "text" in written.files and words.text and not written.kept:
            record.written_text = words.text
        if "embed" in written.files:
            record.take_state(record.image)
        if record.made or record.saved is None:  # Others are written again, not captioned.
            for problem in written.problems:
                record.add_problem(problem)

    def close(self) -> None:
        """End exiftool, and count the photos of which words by people are replaced."""
        self.library.__exit__()
        if self._replaced:
            self.run.note(f"files in which words of people are replaced: {self._replaced:,}")


def words_of(record: PhotoRecord, options: OutputOptions) -> Words:
    """What is written of a record; --describe none leaves the caption out."""
    caption = record.to_caption().with_keywords(options.keywords)
    line = None
    if options.format:
        line = formatted_caption(options.format, record.image, caption).strip()
    return Words(
        caption=caption.text if options.describe == "caption" else "",
        keywords=caption.keywords,
        language=caption.language or ENGLISH,
        confidence=None if record.is_by_person else caption.shown_confidence,
        by_person=record.is_by_person,
        text=line,
    )
