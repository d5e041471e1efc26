"""The captioner a user holds, with a tiny model of random weights; its captions."""

import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_samples import turned
from PIL import Image, ImageOps
from samples import assert_same_captions, photo, save_photo

from captioner.caption.caption import Caption, sentence
from captioner.caption.captioner import Captioner
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.outcomes import Failed
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS

SIZES = [(120, 90), (64, 64), (70, 200), (33, 40), (300, 100)]


@pytest.fixture
def photos() -> list[Image.Image]:
    return [photo(seed, size) for seed, size in enumerate(SIZES)]


@pytest.mark.parametrize("selection", ["soft", "hard"])
def test_forcing_what_a_search_found_gives_its_maps_and_probabilities(
    tiny_captioner: Captioner, photos: list[Image.Image], selection: str
) -> None:
    if selection == "hard":
        config = tiny_captioner.backend.decoder.config.replace(selection="hard")
        decoder = ShowAttendTellDecoder(config, len(tiny_captioner.backend.vocabulary))
        decoder.load_state_dict(tiny_captioner.backend.decoder.state_dict())
        tiny_captioner.backend.decoder = decoder.eval()
    found: list[Caption] = []
    for best in tiny_captioner.caption(photos, beam=6, n_best=6, maximum_length=7):
        ordered = [best, *best.alternatives]
        assert len({caption.words for caption in ordered}) == 6
        assert ordered == sorted(ordered, key=lambda each: each.log_probability, reverse=True)
        found += [replace(caption, alternatives=()) for caption in ordered]
    assert len({len(caption.words) for caption in found}) > 1  # so that some are padded
    of_each = [photo for photo in photos for _ in range(6)]
    explained = tiny_captioner.explain(of_each, [caption.text for caption in found], batch_size=4)
    assert_same_captions(explained, found)


def test_samples_depend_on_the_seed_alone_and_differ_by_batch(tiny_captioner: Captioner) -> None:
    options = {"minimum_length": 4, "sample": True, "n_best": 3, "temperature": 3.0}
    caption = partial(tiny_captioner.caption, [photo()] * 6, batch_size=1, **options)
    first, again, other = (caption(seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [len(each.alternatives) for each in first] == [2] * 6
    assert len({each.text for each in first}) > 2


def test_search_options_go_over_the_models_and_words_are_ordinary(
    tiny_captioner: Captioner, photos: list[Image.Image]
) -> None:
    tiny_captioner.search = SearchOptions(beam=2, minimum_length=9, maximum_length=9)
    (wider,) = tiny_captioner.caption(photos[:1], n_best=4)
    assert [len(each.words) for each in (wider, *wider.alternatives)] == [9] * 4
    with torch.no_grad():  # Left to itself the model would say these, and never end.
        tiny_captioner.backend.decoder.output.bias[[0, 1, 3]] += 50
        tiny_captioner.backend.decoder.output.bias[2] -= 50
    for caption in tiny_captioner.caption(photos):
        assert len(caption.words) == 9
        assert not set(caption.words) & set(SPECIAL_WORDS)


def test_a_photo_gives_one_caption_a_list_a_list(tiny_captioner: Captioner, tmp_path: Path) -> None:
    path = save_photo(tmp_path / "photo.png", 3)
    tensor = torch.tensor(np.array(Image.open(path))).permute(2, 0, 1).half() / 255
    expected = tiny_captioner.caption(path)
    for form in (str(path), path.read_bytes(), np.array([str(path)])[0], tensor):
        (found,) = tiny_captioner.caption([form])
        for caption in (found, tiny_captioner.caption(form)):
            assert (caption.words, caption.region) == (expected.words, expected.region)
            assert caption.log_probability == pytest.approx(expected.log_probability, abs=1e-3)


def test_annotations_are_of_the_upright_photo(tiny_captioner: Captioner, tmp_path: Path) -> None:
    photo(0, (90, 60)).save(tmp_path / "lying.png", exif=turned(6))
    with Image.open(tmp_path / "lying.png") as lying:
        upright = tiny_captioner.annotations(ImageOps.exif_transpose(lying))
        for form in (tmp_path / "lying.png", [lying]):
            np.testing.assert_allclose(tiny_captioner.annotations(form), upright, atol=1e-5)


def test_a_batch_is_as_photos_one_by_one_and_iterators_stay_so(
    tiny_captioner: Captioner, photos: list[Image.Image]
) -> None:
    alone = [tiny_captioner.caption(each) for each in photos]
    assert len({(caption.text, caption.log_probability) for caption in alone}) == len(photos)
    for batch_size in (1, 2, 16):
        assert_same_captions(tiny_captioner.caption(tuple(photos), batch_size=batch_size), alone)
    assert len(tiny_captioner.caption(np.zeros((3, 80, 80, 3), np.uint8))) == 3
    taken = []
    found = tiny_captioner.caption((taken.append(one) or one for one in photos), batch_size=2)
    assert taken == []
    first = next(found)
    assert len(taken) == 2
    assert_same_captions([first, *found], alone)
    assert tiny_captioner.caption([]) == list(tiny_captioner.caption(iter(()))) == []


def test_a_bad_photo_is_named_or_skipped(tiny_captioner: Captioner, tmp_path: Path) -> None:
    good, absent = save_photo(tmp_path / "good.png", 3), tmp_path / "absent.png"
    with pytest.raises(UserError, match=re.escape(str(absent))):
        tiny_captioner.caption([good, absent], batch_size=1)
    with pytest.raises(UserError, match=r"^the image is not an image"):
        tiny_captioner.caption(b"no image")
    with pytest.raises(UserError, match=r"^image 3 of the list is not an image"):
        tiny_captioner.caption([good, good, io.BytesIO(b"no image")], batch_size=2)
    photos = [good, absent, good]
    first, failed, last = tiny_captioner.caption(photos, on_error="skip", batch_size=2)
    assert first == last
    assert failed == Failed(str(absent), f"{absent} does not exist")
    assert tiny_captioner.caption(absent, on_error="skip") == failed


def test_a_caption_as_text_and_as_json() -> None:
    caption = Caption("a dog", ("a", "dog"), -1.5, (-0.25, -1.0), torch.zeros(2, 4, 4))
    several = replace(caption, alternatives=(caption, caption))
    assert repr(several).startswith("Caption(text='a dog', log_probability=-1.5, score=None, con")
    assert str(several) == "a dog"
    assert json.loads(json.dumps(caption.to_dict())) == {
        "caption": "a dog",
        "words": ["a", "dog"],
        "log_probability": -1.5,
        "word_log_probabilities": [-0.25, -1.0],
        "keywords": [],
    }
    assert several.to_dict()["alternatives"] == [caption.to_dict()] * 2


def test_a_caption_draws_itself(tiny_captioner: Captioner, tmp_path: Path) -> None:
    path = save_photo(tmp_path / "a.png", size=(120, 90))
    of_path = tiny_captioner.caption(path, n_best=2)
    of_image = tiny_captioner.caption(Image.open(path), n_best=2)
    for kind in ("overlay", "gif", "html"):
        files = [tmp_path / f"{number}.{kind.replace('overlay', 'png')}" for number in (0, 1)]
        for file, caption in zip(files, (of_path, of_image), strict=True):
            getattr(caption.alternatives[0], kind)(file)
        assert files[0].read_bytes() == files[1].read_bytes()
    assert Image.open(tmp_path / "0.gif").n_frames == len(of_path.alternatives[0].words)
    path.unlink()
    with pytest.raises(UserError, match=r"a\.png does not exist"):
        of_path.gif(tmp_path / "gone.gif")


def test_a_caption_reads_as_it_is_written() -> None:
    forms = {"a man 's dog does n't run": "a man's dog doesn't run", "'s dog 's 's": "'s dog's 's"}
    for words, written in forms.items():
        assert sentence(words.split()) == written
        assert tokenize(written) == words.split()
