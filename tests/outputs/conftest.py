import shutil
from collections.abc import Iterator

import pytest

Embedder = None


@pytest.fixture
def embedder() -> Iterator[Embedder]:
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    embedder = Embedder()
    yield embedder
    embedder.close()
