"""The sink of words about photos: in sidecars and texts beside them, and in themselves."""

from collections.abc import Mapping

from captioner.errors import UserError
from captioner.library import Library, Places, Words
from captioner.model_folders import DEMO_PHOTO
from captioner.outputs.lines import formatted_caption
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PhotoRecord, file_state
from captioner.outputs.sink import Run, Sink
from captioner.text.languages import ENGLISH
from captioner.vision.shards import source_status


class Descriptions(Sink):
    """Writes captions and keywords as --xmp, --text and --embed say."""

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        are_files = all(isinstance(source, str) for source in run.photos.values())
        if not are_files or str(DEMO_PHOTO) in run.photos:
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        options = run.options
        places = Places(sidecar=options.xmp, text=options.text, embed=options.embed)
        overwrite, dry_run = options.overwrite_descriptions, options.dry_run
        self._library = Library(places, overwrite, dry_run, run.photos)
        for sentence in self._library.notes:
            run.report(sentence)

    def files(self, photo: str) -> Mapping[str, str]:
        """Where the words about a photo go."""
        return self._library.files(photo)

    def add(self, record: PhotoRecord) -> None:
        """Write the words of a record, unless they are there as its table says."""
        if not record.caption.strip() or (record.saved and self.has_files(record)):
            return
        options, own_texts = self.run.options, [*record.by_model, *record.own_texts]
        written = self._library.write(record.image, words_of(record, options), own_texts)
        record.described = written
        for sentence in written.notes if options.dry_run or not options.quiet else ():
            self.run.report(sentence)
        if written.files:
            record.files = {**record.files, **written.files}
        state = file_state(source_status(record.image))
        if "embed" in written.files and state:
            record.bytes, record.modified = state
        for problem in written.problems:
            record.add_problem(problem)

    def close(self) -> None:
        """End exiftool."""
        self._library.__exit__()


def words_of(record: PhotoRecord, options: OutputOptions) -> Words:
    """What is written of a record; --describe none leaves the caption out."""
    caption = record.to_caption().with_keywords(options.keywords)
    line = options.format and formatted_caption(options.format, record.image, caption).strip()
    return Words(
        caption=caption.text if options.describe == "caption" else "",
        keywords=caption.keywords,
        language=caption.language or ENGLISH,
        confidence=None if record.is_by_person else caption.shown_confidence,
        by_person=record.is_by_person,
        text=line,
    )
