"""The tokeniser against the COCO evaluation's own, which is a Java program."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import shutil
from pathlib import Path

import pytest

from captioner.text.tokenizer import tokenize, words_by_rules

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
COCO = DATA / "coco" / "captions_val2017_subset.json"
FLICKR8K = DATA / "flickr8k" / "Flickr8k.token.txt"
MULTI30K = DATA / "multi30k" / "train.en.gz"

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime"),
    pytest.mark.skipif(
        importlib.util.find_spec("pycocoevalcap") is None, reason="needs pycocoevalcap"
    ),
]


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"needs the real data, {path.name}")


def suite(captions: list[str]) -> list[list[str]]:
    """The words of captions by pycocoevalcap's tokeniser, as its scorers see them."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    images = {index: [{"caption": caption}] for index, caption in enumerate(captions)}
    written = PTBTokenizer().tokenize(images)
    return [written[index][0].split() for index in range(len(captions))]


def suite_one_by_one(captions: list[str]) -> list[list[str]]:
    """The same for captions that are not to be changed by which one comes next."""
    words = suite([line for caption in captions for line in (caption, "A dog")])
    assert all(of_dog == ["a", "dog"] for of_dog in words[1::2]), "the lines do not match"
    return words[::2]


def assert_equal(captions: list[str], expected: list[list[str]]) -> None:
    unequal = [
        (caption, theirs, tokenize(caption), words_by_rules(caption))
        for caption, theirs in zip(captions, expected, strict=True)
        if not theirs == tokenize(caption) == words_by_rules(caption)
    ]
    assert unequal == []


@pytest.mark.slow
@pytest.mark.data
@needs(COCO)
def test_coco_captions_one_after_another() -> None:
    annotations = json.loads(COCO.read_text(encoding="utf-8"))["annotations"]
    captions = [annotation["caption"].replace("\n", " ") for annotation in annotations]
    assert len(captions) == 24_169
    assert_equal(captions, suite(captions))


@pytest.mark.slow
@pytest.mark.data
@needs(FLICKR8K)
def test_flickr8k_captions_one_after_another() -> None:
    lines = FLICKR8K.read_text(encoding="utf-8").splitlines()
    captions = [line.split("\t")[1] for line in lines]
    assert len(captions) > 30_000
    assert_equal(captions, suite(captions))


@pytest.mark.slow
@pytest.mark.data
@needs(MULTI30K)
def test_multi30k_captions() -> None:
    captions = gzip.decompress(MULTI30K.read_bytes()).decode("utf-8").splitlines()
    assert len(captions) == 29_000
    assert_equal(captions, suite_one_by_one(captions))


TEXT = """
    don't don’t don`t DON'T cannot CANNOT can't won't shan't ain't gonna gotta wanna gimme lemme
    n't dogs' dog's dog’s James's it's 'tis 'Twas d'ye y'all y'know o'clock O'Brien d'Artagnan
    l'eau 'em ’em 'til 'cause 'n' rock'n'roll '90s '60 ’90s 's 're Hawai'i ma'am ne'er c'mon
    s'mores cap'n I'd've they'll cont'd. don'ts more'n x'y a's's int'l "quoted" 'single' “curly”
    ‘curly’ «so» ‹so› ``so'' `so` "a "b" c" ”” ’’ ‘’ ''' \"\"\" ( ) [ ] { } < > (big) [red] {x}
    <b> </b> <br/> <a <a href="x"> <!-- x --> <<a>> -LRB- -rrb- - -- --- ---- ----- – — a–b a—b
    a- -a a--b t-shirt 3-year-old x-u.s. U.S.-based 1,000-pound red,blue-green twenty-'five
    well-known- _ __ a_b _a 1,000 1,00 3.5 .5 5. 1/2 1 1/2 1-1/2 ½ 1½ 50% $5 $5.50 US$5 A$ £5 €5
    ¢ 10:30 10:30pm #1 #tag 1st 1990s 12/25/2003 12-25-03 555-1234 (555) 123-4567 555 123 4567
    +44 20 7946 0958 1e5 5'10" 6" 20°C mr. Mr. dr. st. St. u.s. U.S. a.m. p.m. 5p.m. no. No. no.
    5 fig. 3 vs. etc. jr. inc. Inc. co. K. x. I. A Mass. mass. Ph.D. e.g. i.e. U.S inc.b
    mr.smith etc., end.The a.b a.b.c. hello!world a?b . .. ... .... . . . … wait...what & AT&T
    at&t R&B &amp; A&amp;B &lt; &gt; &quot; &#39; &nbsp; &eacute; caf&eacute; @ @user a@b.com
    <a@b.com> http://x.com/a?b=c https://x.org www.x.com/abc example.com example.com/foo-bar
    foo.jpg file1.txt, and/or w/ w/o he/she's a-b/c a\\/b c# C++ A+B * ** a*b \\* | ~ ^ = + \\ /
    // :) :-( ;D :P =) :/ (^_^) ^_^ -_- <3 >:( XD ! ? ?! !!! , ; : ,, é É café naïve Ångström
    cafe\u0301 \u0301 中文字 日本語 العربية Привет Ελληνικά हिन्दी ไทย ٣ ٣.٥ 😀 👨\u200d👩\u200d👧 ❤️
    ♥ ★ © ® ™ № ² m² H₂O × ÷ ± ° µ ß İ ﬁ （ａ） \u200b \u200ba \xad a\xadb \ufeff \x01 a\x07b \x7f
    \x80 \x92 a\x92s \xa0 a\xa0b \u2003 \u3000 \u2010 a\u2011b \u2044 1\u20442 a the dog dogs The A
    An Two Mr. Smith red blue runs.
"""
FRAGMENTS = [fragment for fragment in TEXT.replace("\n", " ").split(" ") if fragment]


def hostile_captions(count: int) -> list[str]:
    chance = random.Random(3)
    separators = ["", " ", " ", "  ", "\t"]
    captions = list(FRAGMENTS)
    while len(captions) < count:
        parts: list[str] = []
        for _ in range(chance.randint(2, 7)):
            parts += [chance.choice(FRAGMENTS), chance.choice(separators)]
        caption = "".join(parts)
        if chance.random() < 0.3:  # One character is not what it was.
            place = chance.randrange(len(caption))
            other = chance.choice("".join(FRAGMENTS))
            caption = caption[:place] + other + caption[place + 1 :]
        captions.append(caption)
    return captions


def test_hostile_captions() -> None:
    captions = [*hostile_captions(8000), "", " ", "x" * 5000, "a dog's " * 10_000]
    assert_equal(captions, suite_one_by_one(captions))
