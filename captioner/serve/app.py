"""The page and its HTTP interface as one ASGI application."""

import asyncio
import itertools
from asyncio import wrap_future
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import fastapi_offline
from fastapi import APIRouter, Depends, FastAPI, Form, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from pydantic import HttpUrl
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from captioner import __version__
from captioner.caption.caption import Caption
from captioner.caption.captioner import Prepared
from captioner.decoding.options import SearchOptions, TranslationSearch
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO
from captioner.outcomes import Failed, with_results
from captioner.render.page import viewer_script
from captioner.render.typography import printable
from captioner.serve.guard import BEARER, GuardedRoute, JsonCors, answer_error, guarded_app
from captioner.serve.messages import (
    CaptionForm,
    CaptionsAnswer,
    Edit,
    ModelsAnswer,
    OverlayForm,
    ProblemAnswer,
    TranslationRequest,
    TranslationsAnswer,
    photo_answer,
)
from captioner.serve.service import Service
from captioner.text.languages import ENGLISH

_STATIC = Path(__file__).parent / "static"
_FORM = "multipart/form-data"
_MEDIA_TYPES = {"png": "image/png", "gif": "image/gif", "html": "text/html"}

_REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemAnswer, "description": "The request is refused."},
    503: {
        "model": ProblemAnswer,
        "description": "Busy; try again after as many seconds as Retry-After says.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
    },
}
_CONTENT: dict[str, object] = {kind: {} for kind in _MEDIA_TYPES.values()}

router = APIRouter(prefix="/api", responses=_REFUSED, route_class=GuardedRoute)
open_router = APIRouter(prefix="/api", responses=_REFUSED)


class _Files(StaticFiles):
    """Files of the page. What does not exist is not found by any method."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file."""
        answer = await super().get_response(path, {**scope, "method": "GET"})
        if scope["method"] != "GET":
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        return answer


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


OurService = Annotated[Service, Depends(_service)]


@router.post("/caption", response_model=CaptionsAnswer)
async def caption(
    form: Annotated[CaptionForm, Form(media_type=_FORM)], service: OurService
) -> Response:
    """Captions of photos, and where the model looked.

    A photo that cannot be read has an error in its place; where none can, the status is 422.
    """
    if form.erase and _language(form.language, [ENGLISH, *service.languages]) != ENGLISH:
        raise UserError("'erase' tests English words: leave it or the language out")
    captioned = await _captioned(form, service, drawn=form.preview or form.erase)
    if form.erase:
        tested = service.tests.submit(captioned, _search(form, service), ENGLISH)
        captioned = await wrap_future(tested)
    note = service.captioner.lacking_sentence(SearchOptions(without=form.without or ""))

    def answer() -> str:
        photos: Any = [photo_answer(photo, form.maps, form.preview) for photo in captioned]
        return CaptionsAnswer(photos=photos, note=note or None).model_dump_json(exclude_none=True)

    # In a thread: many maps take a second, in which the server would answer nobody.
    return Response(await asyncio.to_thread(answer), media_type="application/json")


@router.post("/overlay", responses={200: {"content": _CONTENT}}, response_class=Response)
async def overlay(
    form: Annotated[OverlayForm, Form(media_type=_FORM)], service: OurService
) -> Response:
    """Maps drawn over photos: panels, an animation, or a page."""
    if len(form.photo) > 1 and form.format != "html":
        raise UserError(f"a {form.format} shows one photo, and field 'photo' has {len(form.photo)}")
    if form.captions and len(form.captions) != len(form.photo):
        raise UserError("field 'captions' is needed once for each photo, or not at all")
    try:
        captions = await asyncio.to_thread(form.sent_captions)
        captioned: Any = await _captioned(form, service, drawn=True, captions=captions)
        content = await asyncio.to_thread(service.draw, form.format, captioned, form.strength)
    except ValueError:  # Of arrays and drawings.
        maps = "a map (rows, columns) of weights >= 0 that sum to 1"
        raise UserError(f"field 'captions' should have {maps} for each word") from None
    headers = {"Content-Disposition": f'attachment; filename="captions.{form.format}"'}
    return Response(content, 200, headers, _MEDIA_TYPES[form.format])


@router.post("/translate", response_model=TranslationsAnswer, response_model_exclude_none=True)
async def translate(asked: TranslationRequest, service: OurService) -> object:
    """Translations of sentences, and their alignments."""
    if not service.translators:
        raise HTTPException(404, "there is no translation model here")
    language = _language(asked.language, service.translators)
    options = asked.model_dump(include={*TranslationSearch.model_fields})
    search = service.translators[language].search.override(**options)
    best = await wrap_future(service.translations.submit(asked.sentences, search, language))
    answers = []
    for source, translation in zip(asked.sentences, best, strict=True):
        versions = [version.to_dict() for version in (translation, *translation.alternatives)]
        answers.append({"source": source, "translations": versions})
    return {"translations": answers}


@router.post("/edits", response_model=Edit)
def edits(asked: Edit, service: OurService) -> object:
    """Keeps a person's caption of a photo; answers with its row of the table."""
    if service.edits is None:
        raise HTTPException(404, "no edits are kept here: captioner serve --edits FILE keeps them")
    return service.edits.save(asked)


@open_router.get("/health")
async def health(request: Request) -> dict[str, str | int]:
    """Whether the server answers, and how many requests are not yet answered."""
    return {"status": "ok", "waiting": request.app.state.waiting}


@router.get("/model", response_model=ModelsAnswer)
async def model(service: OurService) -> object:
    """The models, and what the server accepts."""
    return service


def _language(asked: str | None, offered: Iterable[str]) -> str:
    """The tag asked for, as it is offered; by default the first."""
    tags = {tag.lower(): tag for tag in offered}
    asked = (asked or next(iter(tags))).lower()
    if asked not in tags:
        raise UserError(f"field 'language' should be {' or '.join(tags.values())}")
    return tags[asked]


def _search(form: CaptionForm | OverlayForm, service: Service) -> SearchOptions:
    """The model's search with the options of a form."""
    options = form.model_dump(include={*SearchOptions.model_fields})
    return service.captioner.search.override(**options)


async def _captioned(
    form: CaptionForm | OverlayForm, service: Service, drawn: bool, captions: Any = None
) -> list[Caption | Failed]:
    """The photos of a form with their captions. captions: of all, which must be readable."""
    most = service.limits.photos
    if len(form.photo) > most:
        raise UserError(f"field 'photo' has {len(form.photo)} photos, and the limit is {most}")
    search = _search(form, service)
    language = _language(form.language, [ENGLISH, *service.languages])
    if language != ENGLISH:
        search.refuse_translation()

    async def prepare(file: UploadFile, number: int) -> Prepared | Failed:
        # On one line, without folders.
        name = printable((file.filename or "").replace("\\", "/").rpartition("/")[2])
        name = name[:100] or f"photo {number}"
        try:
            return await asyncio.to_thread(service.prepare, file.file, name, drawn)
        except UserError as error:
            return Failed(name, str(error))

    read = await asyncio.gather(*map(prepare, form.photo, itertools.count(1)))
    photos = [photo for photo in read if isinstance(photo, Prepared)]
    if not photos or (captions is not None and len(photos) < len(read)):
        raise UserError("; ".join(photo.reason for photo in read if isinstance(photo, Failed)))
    if captions:
        captioned = list(map(Prepared.captioned, photos, captions))
    else:
        captioned = await wrap_future(service.captions.submit(photos, search, language))
    return with_results(read, lambda _: captioned)


def make_app(
    service: Service,
    names: Iterable[str] = (),
    public_url: str | None = None,
    allowed_urls: Iterable[str] = (),
    token: str | None = None,
) -> ASGIApp:
    """The application over a service, which it closes when it ends.

    names: host names of this server besides `localhost`; `*.` before a name for all below it.
    public_url: of the page behind a proxy that rewrites the host name.
    allowed_urls: of other sites, whose pages may use the interface. token: needed under /api/.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with suppress(asyncio.CancelledError):  # Of a second Ctrl-C.
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
        docs_url=None,  # Its pages load scripts from elsewhere; that of `_STATIC` does not.
        redoc_url=None,
        servers=[{"url": public_url}] if public_url else None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(
            (RequestValidationError, HTTPException, UserError, Exception), answer_error
        ),
        generate_unique_id_function=lambda route: route.name,
    )
    app.add_middleware(
        JsonCors,  # Another site's page can read refusals as well.
        allow_origins=allowed,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization"],
        allow_private_network=True,
        expose_headers=["Retry-After"],
    )
    app.state.service = service
    app.state.token = token
    app.state.waiting = app.state.held = 0
    app.state.origins = {*allowed, *map(_origin, public)}
    # Only described by this: a `GuardedRoute` checks the token before it reads a content.
    app.include_router(router, dependencies=[Depends(BEARER)] if token else None)
    app.include_router(open_router)
    files = {
        "/viewer.js": Response(viewer_script(), media_type="text/javascript"),
        "/demo.jpg": FileResponse(DEMO_PHOTO),
        "/docs": FileResponse(_STATIC / "docs.html"),
    }
    app.routes.extend(Route(path, file, methods=["GET"]) for path, file in files.items())
    # Not a mount at "/", which would match before a wrong method under /api/ is refused.
    app.router.default = _Files(
        directory=_STATIC,
        packages=[("captioner", "render/static"), (fastapi_offline.__name__, "static")],
        html=True,
    )
    return guarded_app(app, hosts)


def _origin(page: HttpUrl) -> str:
    """The origin of a page, as browsers send it: without a default port."""
    return str(HttpUrl.build(scheme=page.scheme, host=str(page.host), port=page.port)).rstrip("/")
