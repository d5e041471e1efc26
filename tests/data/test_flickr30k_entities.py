from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.flickr30k_entities import Entities
from captioner.errors import UserError

BOXES = """<annotation>
  <filename>1000.jpg</filename>
  <size><width>100</width><height>80</height><depth>3</depth></size>
  <object><name>1</name>
    <bndbox><xmin>1</xmin><ymin>11</ymin><xmax>30</xmax><ymax>80</ymax></bndbox></object>
  <object><name>2</name>
    <bndbox><xmin>5</xmin><ymin>20</ymin><xmax>5</xmax><ymax>40</ymax></bndbox></object>
  <object><name>3</name><name>4</name>
    <bndbox><xmin>51</xmin><ymin>1</ymin><xmax>60</xmax><ymax>10</ymax></bndbox></object>
  <object><name>4</name>
    <bndbox><xmin>71</xmin><ymin>1</ymin><xmax>80</xmax><ymax>10</ymax></bndbox></object>
  <object><name>5</name><scene>1</scene><nobndbox>0</nobndbox></object>
  <object><name>6</name><scene>0</scene><nobndbox>1</nobndbox></object>
</annotation>
"""
SENTENCES = """[/EN#1/people A man] in [/EN#2/clothing a red shirt] on [/EN#5/scene a street] .
[/EN#1/people The tall man] 's [/EN#4/animals two dogs] run ; [/EN#0/notvisual it] rains .
[/EN#3/animals/other A red dog] and [/EN#6/other the man] .
"""
MAN, SHIRT = (0.0, 10.0, 30.0, 80.0), (4.0, 19.0, 5.0, 40.0)
DOG, OTHER_DOG = (50.0, 0.0, 60.0, 10.0), (70.0, 0.0, 80.0, 10.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, BOXES, SENTENCES)
    return tmp_path


def write(folder: Path, boxes: str | None, sentences: str | None, name: str = "1000") -> None:
    for kind, suffix, text in (("Annotations", "xml", boxes), ("Sentences", "txt", sentences)):
        (folder / kind).mkdir(exist_ok=True)
        if text is not None:
            (folder / kind / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def boxes_of(entities: Entities, caption: str) -> dict[str, tuple[tuple[float, ...], ...]]:
    """The boxes of each word of a caption that has some."""
    words = caption.split()
    targets = entities.targets("1000.jpg", words)
    assert len(targets) == len(words)
    assert all(target is None or target.size == (100, 80) for target in targets)
    return {word: target.boxes for word, target in zip(words, targets, strict=True) if target}


@pytest.mark.parametrize("image_id", ["1000", "1000.jpg", "photos/1000.JPG", 1000])
def test_an_image_is_called_by_its_file(folder: Path, image_id: int | str) -> None:
    (man,) = Entities(folder).targets(image_id, ["man"])
    assert man.boxes == (MAN,)


def test_words_of_a_caption_have_the_boxes_of_phrases_with_them(folder: Path) -> None:
    entities = Entities(folder)
    assert boxes_of(entities, "a man and two dogs near the shirt of a woman") == {
        "man": (MAN,),
        "dogs": (DOG, OTHER_DOG),
        "shirt": (SHIRT,),
    }
    assert boxes_of(entities, "it rains on the street") == {}
    assert boxes_of(entities, "tall") == {"tall": (MAN,)}
    # shared by the shirt and the dog
    assert boxes_of(entities, "red") == {"red": (SHIRT, DOG)}


def test_the_last_word_of_a_phrase_comes_before_its_others(tmp_path: Path) -> None:
    sentence = "[/EN#1/people A dog trainer] with [/EN#3/animals the dog] and [/EN#4/x a dog]"
    write(tmp_path, BOXES, sentence)
    assert boxes_of(Entities(tmp_path), "dog trainer") == {
        "dog": (DOG, OTHER_DOG),
        "trainer": (MAN,),
    }


def test_an_image_without_annotations(folder: Path) -> None:
    entities = Entities(folder)
    assert entities.targets("1001.jpg", ["a", "man"]) == [None, None]
    assert entities.targets("\0", ["man"]) == [None]


def test_which_images_are_in_the_folder(folder: Path) -> None:
    write(folder, "not read to know that it is there", None, "1001")
    entities = Entities(folder)
    assert 1000 in entities
    assert "photos/1000.jpg" in entities
    assert "1001" in entities
    assert "1002" not in entities
    assert "\0" not in entities
    assert str(entities) == f"Flickr30k Entities {folder}"


def test_one_file_without_the_other_is_refused(folder: Path) -> None:
    write(folder, None, SENTENCES, "1001")
    write(folder, BOXES, None, "1002")
    entities = Entities(folder)
    with pytest.raises(UserError, match=r"annotation file .*1001.xml does not exist"):
        entities.targets("1001", ["man"])
    with pytest.raises(UserError, match=r"sentence file .*1002.txt does not exist"):
        entities.targets("1002", ["man"])


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no folder Annotations"):
        Entities(tmp_path)
    (tmp_path / "Annotations").mkdir()
    with pytest.raises(UserError, match="has no folder Sentences"):
        Entities(tmp_path)


def test_boxes_are_kept_within_the_picture(tmp_path: Path) -> None:
    text = BOXES.replace("<xmin>1<", "<xmin>0<").replace("<ymax>80<", "<ymax>81<")
    write(tmp_path, text, SENTENCES)
    assert boxes_of(Entities(tmp_path), "tall") == {"tall": (MAN,)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</annotation>", "", "is not valid XML"),
        ("<annotation>", '<!DOCTYPE a [<!ENTITY b "c">]><annotation>', "has a document type decl"),
        ("<width>100</width>", "", "has no number size/width"),
        ("<height>80<", "<height>0<", "has a box without a pixel in its picture"),
        ("<name>2</name>", "", "object 1 of annotation file .* has no name"),
        ("<name>4</name>", "<name> </name>", "object 2 of annotation file .* has no name"),
        ("<xmin>51<", "<xmin>nan<", "object 2 of annotation file .* has no number xmin"),
        ("<xmin>51<", "<xmin>61<", "object 2 of .* has a box without a pixel in its picture"),
        ("<ymin>11<", "<ymin>82<", "object 0 of .* has a box without a pixel in its picture"),
    ],
)
def test_ill_formed_boxes_are_refused_by_name(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in BOXES
    write(tmp_path, BOXES.replace(old, new), SENTENCES)
    with pytest.raises(UserError, match=message) as caught:
        Entities(tmp_path).targets("1000", ["man"])
    assert "1000.xml" in str(caught.value)


@pytest.mark.parametrize(
    "line", ["[/EN#1/people A man", "[/EN#x/people A man]", "[/EN#1/people]", "a [/people man]"]
)
def test_ill_formed_phrases_are_refused_by_line(tmp_path: Path, line: str) -> None:
    write(tmp_path, BOXES, f"A man .\n{line} .\n")
    with pytest.raises(UserError, match=r"line 2 of sentence file .*1000.txt has a phrase that"):
        Entities(tmp_path).targets("1000", ["man"])


def test_a_phrase_of_punctuation_names_nothing(tmp_path: Path) -> None:
    write(tmp_path, BOXES, "[/EN#3/other .] Then [/EN#1/people a man]")
    assert boxes_of(Entities(tmp_path), ". then a man") == {"man": (MAN,)}


@given(st.text(alphabet='<>/annotation!DOCTYPE[]"& ', max_size=40) | st.text(max_size=40))
def test_any_boxes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_entities"
    folder.mkdir(exist_ok=True)
    write(folder, text, SENTENCES, "1")
    with pytest.raises(UserError, match=r"1\.xml"):
        Entities(folder).targets("1", ["man"])
