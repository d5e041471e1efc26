import io
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from photo_samples import encoded, smooth_photo
from PIL import Image

from captioner.errors import UserError
from captioner.vision import decoding_process
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import load_image, original_size

CONTENT = encoded(smooth_photo(90, 60), "PNG")


@pytest.fixture
def pool() -> Iterator[DecodingPool]:
    made = DecodingPool(2, seconds=60.0)
    yield made
    made.close()


def test_photos_and_refusals_are_as_load_image_gives_them(pool: DecodingPool) -> None:
    contents = [encoded(smooth_photo(90, 60 + n), "GIF") for n in range(6)]

    def load(content: bytes) -> Image.Image:
        return pool.load(io.BytesIO(content), "a photo", maximum_pixels=10_000, sufficient_side=30)

    with ThreadPoolExecutor(4) as threads:
        for content, photo in zip(contents, threads.map(load, contents), strict=True):
            expected = load_image(content, 10_000, sufficient_side=30)
            assert photo.tobytes() == expected.tobytes()
            assert photo.size == expected.size
            assert original_size(photo) == original_size(expected)
    for content, pixels in ((b"none", 10_000), (CONTENT, 5_399), (CONTENT[:-20], 10_000)):
        with pytest.raises(UserError) as expected_error:
            load_image(content, pixels, name="a \udcff.png")
        with pytest.raises(UserError) as found:
            pool.load(io.BytesIO(content), "a \udcff.png", maximum_pixels=pixels)
        assert str(found.value) == str(expected_error.value)
    assert load(CONTENT).size == (45, 30)


def test_a_decoder_that_takes_too_long_or_crashes_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = DecodingPool(1, seconds=60.0)
    assert pool.load(io.BytesIO(CONTENT), "a photo", sufficient_side=30).size == (45, 30)
    pool.seconds = 0.0
    with pytest.raises(UserError, match=r"^slow\.png cannot be decoded: the decoder took more tha"):
        pool.load(io.BytesIO(encoded(smooth_photo(2000, 2000), "PNG")), "slow.png")
    pool.seconds = 60.0
    assert pool.load(io.BytesIO(CONTENT), "a photo", sufficient_side=30).size == (45, 30)
    (decoder,) = pool._decoders
    assert decoder._process is not None
    decoder._process.kill()
    decoder._process.wait()  # Idle, it costs no photo.
    assert pool.load(io.BytesIO(CONTENT), "a photo", sufficient_side=30).size == (45, 30)
    decoder.close()
    monkeypatch.setattr(decoding_process, "_PROGRAM", "print()")
    with pytest.raises(UserError, match=r"bad\.png cannot be decoded: the decoder crashed"):
        pool.load(io.BytesIO(CONTENT), "bad.png", sufficient_side=30)
    monkeypatch.undo()
    assert pool.load(io.BytesIO(CONTENT), "a photo", sufficient_side=30).size == (45, 30)
    pool.close()
    assert decoder._process is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited() -> None:
    program = (
        "from captioner.vision.decoding_process import MEMORY, limit_memory\n"
        "limit_memory()\n"
        "try: bytearray(MEMORY + 2**26)\n"
        "except MemoryError: print('limited')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "limited\n"
