"""The tokeniser on captions whose words were recorded from the COCO evaluation's own."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from captioner.text.tokenizer import PUNCTUATION, tokenize

RECORDED = [
    ("A dog runs .", "a dog runs"),
    ("A red, white , and blue t-shirt. Nice.", "a red white and blue t-shirt nice"),
    (" . ' -- !", ""),
    ("A man's dog doesn't run!", "a man 's dog does n't run"),
    ("CAN'T won’t shan`t ain't", "ca n't wo n't sha n`t ai n't"),
    ("'tis 'Twas ’tis", "'t is 't was tis"),
    ("y'all o'clock O'Brien d'Artagnan ma'am", "y' all o'clock o'brien d'artagnan ma'am"),
    ("c'mon s'mores cap'n li'l ne'er", "c'mon s'mores cap'n li'l ne'er"),
    ("Dunkin' Donuts N'Sync l'a j’ai", "dunkin' donuts n'sync l' a j’ ai"),
    ("rock'n'roll rock 'n roll", "rock 'n' roll rock 'n roll"),
    ("the '90s, 1960's, the '05 of '12.", "the '90s 1960 's the '05 of 12"),
    ("a'b Qur'an Hawai'i Toys'R'Us", "a b qur an hawai'i toys r'us"),
    ("cannot gonna gotta wannabe", "can not gon na got ta wannabe"),
    ("\"A 'b' c\" “d” ‘e’ ``f'' «g»", "a b c d e f g"),
    ("(big) [red] {x}", "-lrb- big -rrb- -lsb- red -rsb- -lcb- x -rcb-"),
    ("<b>x</b> <br /> < y >", "<b> x </b> <br /> < y >"),
    ("3-year-old twenty-one -a b- a--b", "3-year-old twenty-one a b a b"),
    ("U.S.-based x-u.s. red,blue-green", "u.s.-based x-u.s. red,blue-green"),
    ("1,000 3.5 .5 5. 10:30pm 10:30 1st", "1,000 3.5 .5 5 10:30 pm 10:30 1st"),
    ("$5.50 US$5 £5 €5 50% 5¢ #1", "$ 5.50 us$ 5 # 5 $ 5 50 % 5 cents # 1"),
    ("12/25/2003 555-1234 555 123 4567", "12/25/2003 555-1234 555 123 4567"),
    ("(555) 123-4567", "-lrb-555-rrb- 123-4567"),
    ("Mr. T. of the U.S. watches t.v. here", "mr. t. of the u.s. watches t.v. here"),
    ("etc. The dog no. 5 no. five no.", "etc. the dog no. 5 no five no"),
    ("a sign that reads K.", "a sign that reads k"),
    ("end.The e.g i.e., Inc.b wait...what", "end.the e.g i.e. inc. b wait what"),
    ("http://x.com/a?b=c. www.x.com example.com", "http://x.com/a?b=c www.x.com example.com"),
    ("&amp; AT&amp;T &lt; &nbsp; &#39;", "& at&t < &#39;"),
    ("AT&T at&t R&B r & b", "at&t at & t r&b r & b"),
    (":) :-( ;D =P :/ <3", ":-rrb- :--lrb- ;d =p / < 3"),
    ("cafe\u0301 \u0301", "cafe\u0301 \u0301"),
    ("😀 a😀b 👨\u200d👩\u200d👧 ♥ ☕", "a b ♥ ☕"),
    ("中文字 日本語 العربية Привет Ελληνικά ไทย", "中文字 日本語 العربية привет ελληνικά ไทย"),
    ("a\u200bb a\xadb a\xa0b a\u3000b a\x01b", "a b ab a b a b a b"),
]  # fmt: skip


@pytest.mark.parametrize(("caption", "words"), RECORDED)
def test_recorded_from_the_evaluation(caption: str, words: str) -> None:
    assert tokenize(caption) == words.split()


def test_line_ends_are_white_space_and_punctuation_is_dropped() -> None:
    for line_end in ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"]:
        caption = f"They cannot{line_end}swim far.{line_end}"
        assert tokenize(caption) == ["they", "can", "not", "swim", "far"]
    for sign in PUNCTUATION:
        assert tokenize(f"a dog {sign} runs") == ["a", "dog", "runs"]


HOSTILE = st.text(st.sampled_from("abBdnstyKM.19 '’`\"-&;,:!?/\\@#$%()[]<>_=*+é٣½\u0301\xad\xa0\n"))


@given(st.text() | HOSTILE)
@example("\ud800 a\udfffb")
@example("İstanbul")
def test_any_text_gives_clean_words(caption: str) -> None:
    words = tokenize(caption)
    assert words == " ".join(words).lower().split()
    assert "<" in caption or PUNCTUATION.isdisjoint(words)  # A tag is one token: <a - b>.


def test_long_captions_and_numbers_of_two_parts() -> None:
    words = [*["a", "dog", "'s"] * 10_000, "!" * 9_000]
    assert tokenize("a dog's " * 10_000 + "!" * 9_000) == words
    assert tokenize("22 3/4 dogs on Main St.") == ["22", "3/4", "dogs", "on", "main", "st."]


# Against the COCO evaluation's own tokeniser

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def assert_equal(captions: list[str]) -> None:
    """To what the Java program makes of the captions, each with one that begins with A after it."""
    ptbtokenizer = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer")
    lines = [line for caption in captions for line in (caption, "A dog")]
    given = {number: [{"caption": line}] for number, line in enumerate(lines)}
    written = ptbtokenizer.PTBTokenizer().tokenize(given)
    words = [written[index][0].split() for index in range(len(lines))]
    assert [line for line in words[1::2] if line != ["a", "dog"]] == []  # The lines match.
    pairs = zip(captions, words[::2], strict=True)
    assert [(each, theirs) for each, theirs in pairs if theirs != tokenize(each)] == []


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("coco/captions_val2017_subset.json", 24_169),
        ("everyday/text/coco_captions.txt.gz", 85_945),
        ("flickr8k/Flickr8k.token.txt", 35_000),
    ],
)
def test_captions_of_real_data(name: str, count: int) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs the real data, {path.name}")
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    captions = [line.rpartition("\t")[2] for line in text.splitlines()]
    if path.suffix == ".json":
        captions = [each["caption"].replace("\n", " ") for each in json.loads(text)["annotations"]]
    assert len(captions) == count
    assert_equal(captions)


@pytest.mark.java
def test_recorded_captions_in_sentences() -> None:
    recorded = [caption for caption, _ in RECORDED]
    words = {word for caption in recorded for word in caption.split(" ") if word}
    forms = ["{}", "A dog {} runs.", '"{}"', "({} x)", "A {} here, too", "{}.", "{} {}"]
    assert_equal([form.format(part, part) for form in forms for part in (*recorded, *words)])
