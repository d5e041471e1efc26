"""Two hundred requests at once over real connections; none is lost, and none gets another's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from serve_samples import Running, photo_bytes, running

from captioner.caption import load_model

Answers = list[httpx.Response]


async def all_at_once(address: str, count: int, patient: bool) -> tuple[Answers, int]:
    """An answer to each request, and how often "busy" was said; the patient come again."""
    limits = httpx.Limits(max_connections=None)
    busy = 0
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=None) as client:

        async def ask(seed: int) -> httpx.Response:
            nonlocal busy
            sent = [("photo", (f"{seed}.png", photo_bytes(seed)))]
            while True:
                answer = await client.post("/api/caption", files=sent, data={"maps": "false"})
                if answer.status_code != 503 or not patient:
                    return answer
                busy += 1
                await asyncio.sleep(int(answer.headers["Retry-After"]))

        return list(await asyncio.gather(*(ask(seed) for seed in range(count)))), busy


def each_has_its_own(answers: Answers, model: Path) -> None:
    seeds = range(len(answers))
    expected = load_model(model).caption([photo_bytes(seed) for seed in seeds])
    assert len({caption.log_probability for caption in expected}) == len(answers)
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    found = [answer.json()["photos"][0] for answer in answers]
    assert [photo["name"] for photo in found] == [f"{seed}.png" for seed in seeds]
    for photo, caption in zip(found, expected, strict=True):
        (own,) = photo["captions"]
        assert own["caption"] == caption.text
        assert own["log_probability"] == pytest.approx(caption.log_probability, abs=1e-4)


@pytest.mark.slow
def test_none_of_two_hundred_is_lost(server: Running, saved_models: tuple[Path, Path]) -> None:
    answers, busy = asyncio.run(all_at_once(server.address, 200, patient=False))
    assert busy == 0
    each_has_its_own(answers, saved_models[0])
    health = httpx.get(f"{server.address}api/health").json()
    assert health == {"status": "ok", "waiting": 0}


@pytest.mark.slow
def test_with_little_room_those_who_come_again_are_all_answered(
    saved_models: tuple[Path, Path],
) -> None:
    with running("--model", str(saved_models[0]), "--max-waiting", "8") as server:
        answers, busy = asyncio.run(all_at_once(server.address, 60, patient=True))
        assert busy > 0
        each_has_its_own(answers, saved_models[0])
        assert httpx.get(f"{server.address}api/health").json()["waiting"] == 0
