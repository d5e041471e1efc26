"""The tokeniser on captions whose words were recorded from the COCO evaluation's own."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from captioner.text.tokenizer import (
    PUNCTUATION,
    tokenize,
    tokenize_unsplit,
    words_by_rules,
)

RECORDED = {
    "plain": [
        ("A dog runs .", "a dog runs"),
        ("  A dog,  runs.  ", "a dog runs"),
        ("A red, white , and blue t-shirt. Nice.", "a red white and blue t-shirt nice"),
        ("a dog's. The end", "a dog 's the end"),
        ("", ""),
        (" . ' -- !", ""),
        ("-", ""),
    ],
    "apostrophes": [
        ("A man's dog doesn't run!", "a man 's dog does n't run"),
        ("CAN'T won’t shan`t ain't", "ca n't wo n't sha n`t ai n't"),
        ("I'd've they'll we're I'm", "i 'd 've they 'll we 're i 'm"),
        ("dogs' toys", "dogs toys"),
        ("do's and don'ts", "do 's and do n'ts"),
        ("'tis 'Twas ’tis", "'t is 't was tis"),
        ("y'all o'clock O'Brien d'Artagnan ma'am", "y' all o'clock o'brien d'artagnan ma'am"),
        ("c'mon s'mores cap'n li'l ne'er", "c'mon s'mores cap'n li'l ne'er"),
        ("Dunkin' Donuts N'Sync l'a j’ai", "dunkin' donuts n'sync l' a j’ ai"),
        ("'em 'til ’em 'cause 'bout", "'em 'til ’em 'cause bout"),
        ("rock'n'roll rock 'n roll", "rock 'n' roll rock 'n roll"),
        ("the '90s, 1960's, the '05 of '12.", "the '90s 1960 's the '05 of 12"),
        ("a'b Qur'an Hawai'i Toys'R'Us", "a b qur an hawai'i toys r'us"),
        ("cannot gonna gotta wannabe", "can not gon na got ta wannabe"),
        ("cannot. gotta.", "can not got ta"),
    ],
    "quotation marks": [
        ("\"A 'b' c\" “d” ‘e’ ``f'' «g»", "a b c d e f g"),
        ("”“ a ’‘ b", "''`` a '` b"),
    ],
    "brackets": [
        ("(big) [red] {x}", "-lrb- big -rrb- -lsb- red -rsb- -lcb- x -rcb-"),
        ("a -LRB- small -rrb- dog", "a -lrb- small -rrb- dog"),
        ("<b>x</b> <br /> < y >", "<b> x </b> <br /> < y >"),
        ("<unk> dog", "<unk> dog"),
    ],
    "hyphens and dashes": [
        ("3-year-old twenty-one -a b- a--b", "3-year-old twenty-one a b a b"),
        ("a–b — c ----- d", "a b c ----- d"),
        ("U.S.-based x-u.s. red,blue-green", "u.s.-based x-u.s. red,blue-green"),
    ],
    "numbers": [
        ("1,000 3.5 .5 5. 10:30pm 10:30 1st", "1,000 3.5 .5 5 10:30 pm 10:30 1st"),
        ("1/2 1 1/2 ½ 1½ 24/7", "1/2 1 1/2 1/2 1 1/2 24/7"),
        ("$5.50 US$5 £5 €5 50% 5¢ #1", "$ 5.50 us$ 5 # 5 $ 5 50 % 5 cents # 1"),
        ("12/25/2003 555-1234 555 123 4567", "12/25/2003 555-1234 555 123 4567"),
        ("(555) 123-4567", "-lrb-555-rrb- 123-4567"),
        ("+5 -1 5-5 5+5 1=1", "+5 -1 5-5 5 +5 1 = 1"),
        ("5'10\" 20°C m²", "5 10 20 ° c m ²"),
    ],
    "periods": [
        ("Mr. T. of the U.S. watches t.v. here", "mr. t. of the u.s. watches t.v. here"),
        ("Furnace St. and Main st.", "furnace st. and main st."),
        ("etc. The dog no. 5 no. five no.", "etc. the dog no. 5 no five no"),
        ("in Mass. a mass. at 5 p.m. Ph.D.", "in mass. a mass at 5 p.m. ph.d."),
        ("a sign that reads K.", "a sign that reads k"),
        ("John K. Smith, K. The", "john k. smith k the"),
        ("end.The e.g i.e., Inc.b wait...what", "end.the e.g i.e. inc. b wait what"),
        (". .. ... . . . a… b", "a b"),
        ("dog., cat.; x", "dog. cat. x"),
    ],
    "web": [
        ("@user #tag a@b.com", "@user #tag a@b.com"),
        ("http://x.com/a?b=c. www.x.com example.com", "http://x.com/a?b=c www.x.com example.com"),
        ("foo.jpg my-foo.jpg", "foo.jpg my-foo jpg"),
        ("&amp; AT&amp;T &lt; &nbsp; &#39;", "& at&t < &#39;"),
    ],
    "signs": [
        ("AT&T at&t R&B r & b", "at&t at & t r&b r & b"),
        ("and/or w/ w/o 1/2/3/4", "and/or w / w/o 1/2/3 / 4"),
        ("a*b ** _x_ a_b ~ ^ | \\", "a * b ** _ x _ a_b ~ ^ | \\"),
        (":) :-( ;D =P :/ <3", ":-rrb- :--lrb- ;d =p / < 3"),
        ("! !! ?! hello!world", "!! ?! hello!world"),
        ("colour grey theatre", "colour grey theatre"),
    ],
    "characters": [
        ("CAFÉ naïve Ångström", "café naïve ångström"),
        ("cafe\u0301 \u0301", "cafe\u0301 \u0301"),
        ("😀 a😀b 👨\u200d👩\u200d👧 ♥ ☕", "a b ♥ ☕"),
        ("中文字 日本語 العربية Привет Ελληνικά ไทย", "中文字 日本語 العربية привет ελληνικά ไทย"),
        ("a\u200bb a\xadb a\xa0b a\u3000b a\x01b", "a b ab a b a b a b"),
        ("a\tb c\td.", "a b c d"),
        ("‐ a‑b x\ufeffy", "a‑b x y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("caption", "words"),
    [pytest.param(*case, id=f"{kind}-{case[0]}") for kind in RECORDED for case in RECORDED[kind]],
)
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
    for word in words:
        assert word
        assert not any(character.isspace() for character in word)
        assert word == word.lower()
    if "<" not in caption:  # A tag is one token, whose parts are words: <a - b>.
        assert PUNCTUATION.isdisjoint(words)
    assert " ".join(tokenize_unsplit(caption)).split() == words


@given(st.text("abcnotgAZK ,.-\n"))
@example("cannot. gotta, st. K. no. x-y.")
def test_plain_captions_are_what_the_rules_give(caption: str) -> None:
    assert tokenize_unsplit(caption) == words_by_rules(caption)


@given(st.text("abcnotgAZ \n,!?()[]"))
def test_words_joined_by_spaces_are_the_same_words_again(caption: str) -> None:
    words = tokenize(caption)
    assert tokenize(" ".join(words)) == words


def test_long_captions_and_numbers_of_two_parts() -> None:
    assert tokenize("a dog's " * 10_000) == ["a", "dog", "'s"] * 10_000
    for long in ("x" * 100_000, "!" * 10_000):
        assert tokenize(long) == [long]
    assert tokenize_unsplit("22 3/4 dogs on Main St.") == ["22\xa03/4", "dogs", "on", "main", "st."]
