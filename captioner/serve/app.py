"""The page and the HTTP interface as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from captioner.render.web_page import static_file, viewer_script
from captioner.serve.answers import problem_answer
from captioner.serve.guard import Guard
from captioner.serve.interface import Interface
from captioner.serve.problems import Problem
from captioner.serve.service import Service

_STATIC = Path(__file__).parent / "static"

_SENTENCES = {404: "there is nothing at this address", 405: "this address takes another method"}


def make_app(
    service: Service,
    names: Iterable[str] = (),
    demo: Path | None = None,
    version: str = "",
) -> ASGIApp:
    """The application over a service, which it closes when it ends.

    names: what the server may be called besides `localhost`; see `Guard`.
    demo: a JPEG that the page offers to those who have no photo at hand.
    version: of the package, for those who ask.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    routes = [
        Mount("/api", routes=Interface(service, version).routes()),
        Route("/viewer.js", _viewer_script),
        Route("/viewer.css", _viewer_style),
        *([] if demo is None else [_demo_route(demo)]),
        Mount("/", StaticFiles(directory=_STATIC, html=True)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, names=tuple(names))],
        exception_handlers={Problem: _on_problem, HTTPException: _on_http_exception},
        lifespan=lifespan,
    )


async def _viewer_script(request: Request) -> Response:
    return Response(viewer_script(), media_type="text/javascript")


async def _viewer_style(request: Request) -> Response:
    return Response(static_file("viewer.css"), media_type="text/css")


def _demo_route(photo: Path) -> Route:
    async def demo(request: Request) -> Response:
        return FileResponse(photo, media_type="image/jpeg")

    return Route("/demo.jpg", demo)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_answer(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = _SENTENCES.get(error.status_code, "this cannot be answered")
    return problem_answer(Problem(error.status_code, sentence, error.headers))
