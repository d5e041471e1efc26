"""Sixty requests at once over real connections; none is lost, and none gets another's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from serve_samples import Running, files, photo_bytes

from captioner.caption import load_model


async def all_at_once(address: str, count: int) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=None) as client:
        asked = [
            client.post("/api/caption", files=files(seed), data={"maps": "false"})
            for seed in range(count)
        ]
        return list(await asyncio.gather(*asked))


@pytest.mark.slow
def test_none_of_sixty_is_lost(server: Running, saved_models: tuple[Path, Path]) -> None:
    answers = asyncio.run(all_at_once(server.address, 60))
    expected = load_model(saved_models[0]).caption([photo_bytes(seed) for seed in range(60)])
    assert len({caption.log_probability for caption in expected}) == 60
    assert [answer.status_code for answer in answers] == [200] * 60
    for seed, (answer, caption) in enumerate(zip(answers, expected, strict=True)):
        (photo,) = answer.json()["photos"]
        assert photo["name"] == f"{seed}.png"
        (own,) = photo["captions"]
        assert own["caption"] == caption.text
        assert own["log_probability"] == pytest.approx(caption.log_probability, abs=1e-4)
    health = httpx.get(f"{server.address}api/health").json()
    assert health == {"status": "ok", "waiting": 0}
