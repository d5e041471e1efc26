from __future__ import annotations

from pathlib import Path

import pytest
from data_samples import counts, read

from captioner.errors import UserError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "flickr8k"
GHOST = "2258277193_586949ec62.jpg.1"


def source(folder: Path, *lines: str) -> Path:
    file = folder / "Flickr8k.token.txt"
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    for name in ("a.jpg", "b.jpg"):
        (folder / name).touch()
    return file


def test_captions_are_grouped_by_image_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = source(
        tmp_path, "b.jpg#0\tA dog .", "a.jpg#0\tA # cat\tsits", "", "b.jpg#1\t It\u2028runs "
    )
    result = read("flickr8k", file, tmp_path)
    assert [(image.image_id, image.path, image.captions) for image in result.images] == [
        ("b.jpg", tmp_path / "b.jpg", ("A dog .", "It\u2028runs")),
        ("a.jpg", tmp_path / "a.jpg", ("A # cat\tsits",)),
    ]


def test_a_list_chooses_the_images_and_their_order(tmp_path: Path) -> None:
    file = source(tmp_path, "b.jpg#0\tone", "a.jpg#0\ttwo", "absent.jpg#0\tthree")
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("a.jpg\r\n\nb.jpg\n")
    images = read("flickr8k", file, tmp_path, chosen).images
    assert [image.image_id for image in images] == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("split", "name"),
    [
        ("train", "Flickr_8k.trainImages.txt"),
        ("val", "Flickr_8k.devImages.txt"),
        ("test", "Flickr_8k.testImages.txt"),
        ("val", "val.txt"),
    ],
)
def test_a_split_is_found_by_name_beside_the_token_file(
    tmp_path: Path, split: str, name: str
) -> None:
    file = source(tmp_path, "b.jpg#0\tone", "a.jpg#0\ttwo")
    with pytest.raises(UserError, match=f"the list of the split '{split}' .* not beside it"):
        read("flickr8k", file, tmp_path, split)
    (tmp_path / name).write_text("b.jpg\n")
    assert [image.image_id for image in read("flickr8k", file, tmp_path, split).images] == ["b.jpg"]


def test_the_photo_that_does_not_exist_is_a_named_problem(tmp_path: Path) -> None:
    lines = ["a.jpg#0\tone", *(f"{GHOST}#{n}\tghost" for n in range(5))]
    file = source(tmp_path, *lines)
    with pytest.raises(UserError, match=rf"1 missing image \(image {GHOST} \(line 2\) has no file"):
        read("flickr8k", file, tmp_path)
    result = read("flickr8k", file, tmp_path, on_problem="skip")
    assert [image.image_id for image in result.images] == ["a.jpg"]
    assert counts(result.problems) == {"missing image": 1}


def test_problems_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    file = source(
        tmp_path,
        *("a.jpg#0\tone", "a.jpg#0\tsame number", "a.jpg#1\t ", "a.jpg#2 no tab", "a.jpg\tnone"),
        *("a.jpg#x\tletter", f"a.jpg#{'9' * 5000}\tmany digits", " #1\tno name", "b.jpg#0\tleft"),
    )
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("a.jpg\na.jpg\nbare.jpg\n")
    (tmp_path / "bare.jpg").touch()
    result = read("flickr8k", file, tmp_path, chosen, on_problem="skip")
    assert [(image.image_id, image.captions) for image in result.images] == [("a.jpg", ("one",))]
    assert counts(result.problems) == {
        "duplicate image": 1,
        "duplicate caption": 1,
        "empty caption": 1,
        "ill-formed line": 5,
        "image without captions": 1,
    }
    with pytest.raises(UserError, match=r"caption a.jpg#1 \(line 3\) has no words"):
        read("flickr8k", file, tmp_path, chosen)


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"token file .*Flickr8k.token.txt does not exist"):
        read("flickr8k", tmp_path / "Flickr8k.token.txt", tmp_path)
    file = source(tmp_path, "a.jpg#0\tone")
    with pytest.raises(UserError, match=r"split list .*absent.txt does not exist"):
        read("flickr8k", file, tmp_path, tmp_path / "absent.txt")


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_dir(), reason="the real Flickr8k is not in ../shared/data")
@pytest.mark.parametrize(("split", "count"), [("train", 6000), ("val", 1000)])
def test_real_splits(split: str, count: int) -> None:
    result = read("flickr8k", REAL / "Flickr8k.token.txt", REAL / "images", split)
    assert len(result.images) == count
    assert {len(image.captions) for image in result.images} == {5}
    assert result.images[0].image_id == (REAL / f"{split}.txt").read_text().split()[0]
    assert len(result.problems) == 0
