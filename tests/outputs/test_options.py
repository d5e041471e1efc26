"""Options of outputs, from Python."""

import pytest

from captioner.errors import UserError
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.outputs.origin import origin_of


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"overlays": "maps/"}, "unknown field 'overlays'; did you mean 'overlay'?"),
        ({"json": 3}, "json should be an instance of str, found 3"),
        ({"strength": 1.5}, "strength should be less than or equal to 1, found 1.5"),
        ({"xmp": "picasa"}, "xmp 'picasa' is not one of lightroom, digikam, darktable"),
        ({"resume_any": True}, "--resume needs --jsonl FILE"),
        ({"text": True, "format": "{caption"}, "--format {caption is not understood"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        OutputOptions(**options)
    assert str(refused.value).startswith(sentence)


def test_records_name_what_is_known_of_captions_from_python() -> None:
    source = CaptionSource(language="de", search={"beam": 2})
    origin = origin_of(source)
    assert ("translator" in origin, origin["search"]["beam"]) == (False, 2)
    with pytest.raises(UserError, match="unknown field 'beem'"):
        origin_of(source.replace(search={"beem": 3}))
    assert "digest" not in origin_of(source.replace(model="of my own"))
