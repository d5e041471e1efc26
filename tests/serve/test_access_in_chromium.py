"""The token, pages of other sites and the description, in a real browser."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from chromium_samples import Open, captioned, needs_chromium
from playwright.sync_api import Browser, Dialog, expect
from serve_samples import Running, running

pytestmark = needs_chromium


@pytest.fixture
def other_port(tmp_path: Path) -> Iterator[int]:
    """The port of a server of empty pages."""
    (tmp_path / "index.html").touch()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever).start()
        yield other.server_port
        other.shutdown()


@pytest.fixture
def guarded(saved_models: tuple[Path, Path], other_port: int, tmp_path: Path) -> Iterator[Running]:
    """A server with the token "right", which a site at 127.0.0.1 may use and none at localhost."""
    (tmp_path / "token").write_text("right\n")
    access = ("--token-file", str(tmp_path / "token"))
    site = ("--allow-origin", f"http://127.0.0.1:{other_port}/")
    with running("--model", str(saved_models[0]), "--no-translator", *access, *site) as server:
        yield server


ASK = """async ([address, token]) => {
  const body = new FormData();
  body.append("photo", new Blob(["no photo"]), "a.txt");
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const answer = await fetch(address, { method: "POST", body, headers });
    return [answer.status, (await answer.json()).error];
  } catch (error) {
    return [0, error.message];
  }
}"""


def test_only_the_page_of_an_allowed_site_gets_answers(
    browser: Browser, guarded: Running, other_port: int
) -> None:
    page = browser.new_page()
    address = f"{guarded.address}api/caption"
    page.goto(f"http://127.0.0.1:{other_port}/")
    status, sentence = page.evaluate(ASK, [address, "right"])
    assert (status, "a.txt is not an image" in sentence) == (422, True)
    assert page.evaluate(ASK, [address, "wrong"])[0] == 401
    page.goto(f"http://localhost:{other_port}/")
    assert page.evaluate(ASK, [address, "right"]) == [0, "Failed to fetch"]
    page.close()


def test_the_page_asks_for_the_token_once(open_page: Open, guarded: Running) -> None:
    page = open_page()
    answers = iter(["wrong", "right "])
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept(next(answers))

    page.on("dialog", answer)
    page.goto(guarded.address)
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    page.click("#example")
    captioned(page, 1)
    page.reload()
    captioned(page, 1)
    assert asked == ["The token of this server"] * 2


def test_the_description_is_shown_without_anything_from_elsewhere(
    open_page: Open, server: Running
) -> None:
    page = open_page()
    page.goto(f"{server.address}docs")
    expect(page.locator(".opblock-summary-path")).to_have_count(5)
    page.get_by_text("/api/caption").first.click()
    expect(page.get_by_text("image files; /api/model gives the limits")).to_be_visible()
