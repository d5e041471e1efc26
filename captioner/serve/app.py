"""The page and its HTTP interface as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import fastapi_offline
from fastapi import Depends, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from pydantic import HttpUrl
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from captioner import __version__
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO
from captioner.render.page import viewer_script
from captioner.serve.guard import BEARER, OwnHosts, answer_error, with_headers
from captioner.serve.routes import router
from captioner.serve.service import Service

_STATIC = Path(__file__).parent / "static"


def make_app(
    service: Service,
    names: Iterable[str] = (),
    public_url: str | None = None,
    allowed_urls: Iterable[str] = (),
    token: str | None = None,
) -> ASGIApp:
    """The application over a service, which it closes when it ends.

    names: host names of this server besides `localhost`, as `TrustedHostMiddleware` takes them; a
        name that another site had lead here would let that site use the server.
    public_url: of the page behind a proxy that rewrites the host name. allowed_urls: of other
        sites, whose pages may use the interface. token: needed under /api/, if there is one.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    public = [HttpUrl(public_url)] if public_url else []
    hosts = ["localhost", "127.0.0.1", "[::1]", *names, *(str(url.host) for url in public)]
    allowed = [_origin(HttpUrl(url)) for url in allowed_urls]
    app = FastAPI(
        title="captioner",
        version=__version__,
        description="Captions of photos with attention maps, and translations with alignments.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # Loads scripts from elsewhere; below is one that does not.
        redoc_url=None,
        servers=[{"url": public_url}] if public_url else None,
        lifespan=lifespan,
        middleware=[
            Middleware(
                CORSMiddleware,  # First: another site's page can read refusals as well.
                allow_origins=allowed,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization"],
                allow_private_network=True,
                expose_headers=["Retry-After"],
            ),
            Middleware(OwnHosts, allowed_hosts=hosts),
        ],
        exception_handlers=dict.fromkeys(
            (RequestValidationError, HTTPException, UserError, Exception), answer_error
        ),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.state.token = token
    app.state.waiting = 0
    app.state.held = 0
    app.state.origins = {*allowed, *map(_origin, public)}
    # Only described by this: a `GuardedRoute` checks the token before a request's content is read.
    app.include_router(router, dependencies=[Depends(BEARER)] if token else None)
    files = {
        "/viewer.js": Response(viewer_script(), media_type="text/javascript"),
        "/demo.jpg": FileResponse(DEMO_PHOTO),
        "/docs": FileResponse(_STATIC / "docs.html"),
    }
    app.routes.extend(Route(path, file, methods=["GET"]) for path, file in files.items())
    # Not a mount at "/", which would match before a wrong method under /api/ is refused.
    app.router.default = StaticFiles(
        directory=_STATIC,
        packages=[("captioner", "render/static"), (fastapi_offline.__name__, "static")],
        html=True,
    )
    return with_headers(app)


def _origin(page: HttpUrl) -> str:
    """The origin of a page, as browsers send it: without a default port."""
    return str(HttpUrl.build(scheme=page.scheme, host=str(page.host), port=page.port)).rstrip("/")
