import shutil

import pytest

from captioner.library import Library, Places


@pytest.fixture
def library() -> Library:
    """The gate to photos in which words are embedded."""
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    return Library(Places(embed=True))
