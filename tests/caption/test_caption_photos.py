"""Captions of many photos: found, in batches, in threads."""

from pathlib import Path
from threading import Barrier, current_thread, main_thread
from typing import Any

import pytest
from PIL import Image
from samples import Patch, assert_same_captions, make_captioner, save_photo

from captioner.caption import captioner as photos
from captioner.caption.caption import Caption
from captioner.caption.captioner import caption_photos
from captioner.outcomes import Failed
from captioner.vision.finding import find_photos
from captioner.vision.preprocessing import Preprocessing


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Seven photos."""
    return [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(7)]


def test_a_large_photo_is_captioned_and_drawn_from_fewer_pixels(tmp_path: Path) -> None:
    path, model = str(save_photo(tmp_path / "large.jpg", size=(2402, 1804))), make_captioner()
    region = model.preprocessing.region(2402, 1804)
    own, copied = model.caption(path), model.caption(Image.open(path))
    assert (own.photo, own.region, copied.region) == (path, region, region)
    assert copied.photo.size == (1201, 902)
    assert own.drawn()[1] == region
    assert copied.words == own.words
    assert copied.drawn()[1] == pytest.approx([edge / 2 for edge in region], abs=1)


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_side_by_side_give_what_one_after_the_other_does(
    paths: list[str], workers: int, sample: bool, monkeypatch: Patch
) -> None:
    Path(paths[3]).write_bytes(b"no photo")
    preprocess, large = Preprocessing.pixels, str(save_photo(Path(paths[5]), size=(21, 20)))

    def scarce(self: Preprocessing, image: Image.Image) -> Any:
        if image.width == 21:
            raise MemoryError
        return preprocess(self, image)

    monkeypatch.setattr(Preprocessing, "pixels", scarce)
    model = make_captioner()
    search = model.search.replace(beam=1, sample=True, seed=3) if sample else None
    found = []
    for number in (0, workers):
        monkeypatch.setattr(
            photos, "share_out", lambda _, __, size, most, n=number: (min(n, most), size)
        )
        found.append(list(caption_photos(model, find_photos(paths)[0].items(), search, 2)))
    assert [item.name for item in found[1]] == paths
    for items in found:
        assert items.pop(5) == Failed(large, f"{large} needs more memory than there is")
        assert isinstance(items.pop(3), Failed)
        assert {type(item) for item in items} == {Caption}
    assert_same_captions(*found)


def test_for_a_gpu_photos_are_read_together_but_an_open_image_by_one_thread(
    paths: list[str], monkeypatch: Patch
) -> None:
    model, read, met, threads = make_captioner(), Preprocessing.pixels, Barrier(3), []
    expected = model.caption(paths[:6])

    def meet(self: Preprocessing, image: Image.Image) -> Any:
        threads.append(current_thread())
        met.wait(timeout=10)
        return read(self, image)

    monkeypatch.setattr(Preprocessing, "pixels", meet)
    monkeypatch.setattr(photos, "loading_workers", lambda device: 3)
    assert_same_captions(model.caption(paths[:6]), expected)
    met, threads = Barrier(1), []
    with Image.open(paths[0]) as image:
        model.caption([image] * 4)
    assert threads == [main_thread()] * 4
