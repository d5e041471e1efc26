import shutil
from collections.abc import Iterator

import pytest

from captioner.library import Library, Places


@pytest.fixture
def library() -> Iterator[Library]:
    """The gate to photos in which words are embedded."""
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    with Library(Places(embed=True)) as library:
        yield library
