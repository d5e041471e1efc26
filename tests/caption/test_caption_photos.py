from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, current_thread, main_thread
from typing import Any

import pytest
from PIL import Image
from samples import assert_same_captions, make_captioner, save_photo

from captioner.caption.captioner import Captioner
from captioner.caption.photos import (
    Captioned,
    Failed,
    caption_photos,
    find_photos,
    named_photos,
)
from captioner.data.example import Example
from captioner.evaluation.score import caption_examples
from captioner.vision.preprocessing import Preprocessing


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Seven photos."""
    return [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(7)]


def test_each_photo_is_named_once_and_what_names_none_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    names = ("b.jpg", "a.jpg", "c.jpg")
    b, a, c = (str(save_photo(tmp_path / "in" / name)) for name in names)
    (tmp_path / "empty").mkdir()
    address = "https://example.org//a.jpg"
    empty = str(tmp_path / "empty")
    found, (nothing, fetched, folder) = find_photos(["", address, b, a, empty, f"{tmp_path}/in", b])
    assert list(found.items()) == [(b, b), (a, a), (c, c)]
    assert nothing == Failed("", "an empty path names no photo")
    reason = f"{address} is an address; photos are not fetched, only read"
    assert fetched == Failed(address, reason)
    assert folder.name in folder.reason


def test_a_large_photo_is_captioned_and_drawn_from_fewer_pixels(tmp_path: Path) -> None:
    path = str(save_photo(tmp_path / "large.jpg", size=(1201, 902)))
    model = make_captioner()
    region = model.preprocessing.region(1201, 902)
    named = named_photos({path: path}, model.preprocessing.sufficient_side)
    (reduced,), (whole,) = (
        list(caption_photos(model, photos)) for photos in (named, named_photos({path: path}))
    )
    assert reduced.photo.size == (301, 226)
    assert whole.photo.size == (1201, 902)
    assert whole.caption.region == reduced.caption.region == whole.caption.drawn()[3] == region
    own = model.caption(path)
    assert (own.photo, own.region) == (path, region)
    assert own.drawn()[3] == region  # 902 pixels are less than 1,024, so that all are read.
    assert reduced.caption.words == whole.caption.words
    assert reduced.caption.drawn()[3] == pytest.approx([edge / 4 for edge in region], abs=1)
    (drawn,) = caption_photos(model, named_photos({path: path}), drawn_side=400)
    assert drawn.photo.size == (401, 301)
    assert drawn.caption.drawn()[3] == pytest.approx([edge / 3 for edge in region], abs=1)


def test_a_photo_that_needs_too_much_memory_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(save_photo(tmp_path / f"{n}.png", n, size=(20 + n, 20))) for n in range(3)]
    preprocess = Preprocessing.pixels

    def scarce(self: Preprocessing, image: Image.Image) -> Any:
        if image.width == 21:
            raise MemoryError
        return preprocess(self, image)

    monkeypatch.setattr(Preprocessing, "pixels", scarce)
    found = list(caption_photos(make_captioner(), named_photos(find_photos(paths)[0])))
    assert [type(item) for item in found] == [Captioned, Failed, Captioned]
    assert found[1] == Failed(paths[1], f"{paths[1]} needs more memory than there is")


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_side_by_side_give_what_one_after_the_other_does(
    paths: list[str], workers: int, sample: bool
) -> None:
    Path(paths[3]).write_bytes(b"no photo")
    model = make_captioner()
    search = model.search.replace(beam=1, sample=True, seed=3) if sample else None
    expected, found = (
        list(
            caption_photos(
                model,
                named_photos(find_photos(paths)[0]),
                search,
                batch_size=2,
                workers=each,
            )
        )
        for each in (0, workers)
    )
    assert [item.name for item in found] == paths
    failed, _ = found.pop(3), expected.pop(3)
    assert isinstance(failed, Failed)
    assert_same_captions(*([item.caption for item in items] for items in (found, expected)))


def captioned(model: Captioner, paths: Sequence[str]) -> list[str]:
    return [caption.text for caption in model.caption(paths)]


def evaluated(model: Captioner, paths: Sequence[str]) -> list[str]:
    examples = [Example(path, Path(path)) for path in paths]
    return [caption.text for _, caption in caption_examples(model, examples)]


@pytest.mark.parametrize("texts", [captioned, evaluated])
def test_a_gpu_has_several_photos_read_at_once(
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    texts: Callable[[Captioner, Sequence[str]], list[str]],
) -> None:
    model, read, met = make_captioner(), Preprocessing.pixels, Barrier(3)
    expected = texts(model, paths[:6])

    def meet(self: Preprocessing, image: Image.Image) -> Any:
        met.wait(timeout=10)
        return read(self, image)

    monkeypatch.setattr(Preprocessing, "pixels", meet)
    monkeypatch.setattr(Captioner, "readers", lambda self: 3)
    assert texts(model, paths[:6]) == expected


def test_an_open_image_is_read_by_one_thread(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, read = [], Preprocessing.pixels

    def note(self: Preprocessing, image: Image.Image) -> Any:
        threads.append(current_thread())
        return read(self, image)

    monkeypatch.setattr(Preprocessing, "pixels", note)
    monkeypatch.setattr(Captioner, "readers", lambda self: 3)
    with Image.open(paths[0]) as image:
        make_captioner().caption([image] * 4)
    assert threads == [main_thread()] * 4
