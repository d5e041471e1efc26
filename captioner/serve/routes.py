"""Addresses under /api/."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request, Response, UploadFile

from captioner.caption.photos import Captioned
from captioner.errors import UserError
from captioner.render.typography import printable
from captioner.render.web_page import jpeg_address
from captioner.serve.messages import (
    CaptionAnswer,
    CaptionerAnswer,
    CaptionForm,
    CaptionsAnswer,
    DrawnCaption,
    HealthAnswer,
    ModelsAnswer,
    OverlayForm,
    PhotoAnswer,
    ProblemAnswer,
    SentenceAnswer,
    TranslationAnswer,
    TranslationRequest,
    TranslationsAnswer,
    TranslatorAnswer,
    UnreadablePhoto,
    search_with,
)
from captioner.serve.service import MEDIA_TYPES, Prepared, Service
from captioner.text.languages import ENGLISH

_FORM = "multipart/form-data"
_LONGEST_NAME = 100

_REFUSED: Any = {"4XX": {"model": ProblemAnswer, "description": "The request is refused."}}
_BUSY: Any = {
    503: {
        "model": ProblemAnswer,
        "description": "Busy; try again after as many seconds as Retry-After says.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
    }
}
_FILES: Any = {
    200: {
        "description": "The file.",
        "content": {kind.partition(";")[0]: {} for kind in MEDIA_TYPES.values()},
    }
}


async def _refuse_other_sites(request: Request) -> None:
    """Refuse requests that other web sites make through a visitor's browser.

    Any site can have a browser send requests to the server; the browser names the site (`Origin`,
    `Sec-Fetch-Site`).
    """
    host = request.headers.get("host", "").lower()
    own = (f"http://{host}", f"https://{host}")
    origin = request.headers.get("origin", own[0]).lower()
    site = request.headers.get("sec-fetch-site", "none")
    if origin in request.app.state.origins:
        return
    if origin not in own or site not in ("none", "same-origin"):
        raise HTTPException(403, "other sites may not use this server without --allow-origin")


router = APIRouter(prefix="/api", responses=_REFUSED, dependencies=[Depends(_refuse_other_sites)])


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


OurService = Annotated[Service, Depends(_service)]


@router.post("/caption", responses=_BUSY, response_model_exclude_none=True)
async def caption(
    form: Annotated[CaptionForm, Form(media_type=_FORM)], service: OurService
) -> CaptionsAnswer:
    """Captions of photos, and where the model looked.

    A photo that cannot be read has an error in its place; where none can, the status is 422.
    """
    search = search_with(form, service.captioner.search, service.limits)
    language = _language(form.language, [ENGLISH, *service.languages])
    read = await _photos(form.photo, service, drawn=form.preview)
    photos = [each for each in read if isinstance(each, Prepared)]
    if not photos:
        _refuse_unreadable(read)
    captions = iter(await service.caption(photos, search, language))
    return CaptionsAnswer(
        photos=[
            each
            if isinstance(each, UnreadablePhoto)
            else PhotoAnswer(
                name=each.name,
                width=each.size[0],
                height=each.size[1],
                region=each.region,
                captions=CaptionAnswer.all_of(next(captions), form.maps),
                preview=jpeg_address(each.photo) if each.photo else None,
            )
            for each in read
        ]
    )


@router.post("/overlay", responses=_BUSY | _FILES, response_class=Response)
async def overlay(
    form: Annotated[OverlayForm, Form(media_type=_FORM)], service: OurService
) -> Response:
    """Maps drawn over photos: panels, an animation, or a page."""
    if len(form.photo) > 1 and form.format != "html":
        raise UserError(f"a {form.format} shows one photo, and field 'photo' has {len(form.photo)}")
    if form.captions and len(form.captions) != len(form.photo):
        raise UserError("field 'captions' is needed once for each photo, or not at all")
    search = search_with(form, service.captioner.search, service.limits)
    language = _language(form.language, [ENGLISH, *service.languages])
    read = await _photos(form.photo, service, drawn=True)
    photos = [each for each in read if isinstance(each, Prepared)]
    if len(photos) < len(read):
        _refuse_unreadable(read)
    try:
        captions = [DrawnCaption.as_one(each) for each in form.captions]
        captions = captions or await service.caption(photos, search, language)
        drawings = [
            Captioned(photo.name, written.of_photo(photo.photo, photo.region))
            for photo, written in zip(photos, captions, strict=True)
        ]
        content = await service.draw(form.format, drawings, form.strength)
    except ValueError as error:  # Maps that are none.
        raise UserError(str(error)) from None
    headers = {"Content-Disposition": f'attachment; filename="captions.{form.format}"'}
    return Response(content, 200, headers, MEDIA_TYPES[form.format])


@router.post("/translate", responses=_BUSY, response_model_exclude_none=True)
async def translate(asked: TranslationRequest, service: OurService) -> TranslationsAnswer:
    """Translations of sentences, and their alignments."""
    if not service.translators:
        raise HTTPException(404, "there is no translation model here")
    language = _language(asked.language, service.translators) or next(iter(service.translators))
    search = search_with(asked, service.translators[language].search, service.limits)
    found = await service.translate(asked.sentences, search, language)
    return TranslationsAnswer(
        translations=[
            SentenceAnswer(
                source=sentence,
                translations=[
                    TranslationAnswer(**each.to_dict()) for each in (best, *best.alternatives)
                ],
            )
            for sentence, best in zip(asked.sentences, found, strict=True)
        ]
    )


@router.get("/health")
async def health(request: Request) -> HealthAnswer:
    """Whether the server answers, and how much is waiting."""
    return HealthAnswer(waiting=request.state.waiting)


@router.get("/model")
async def model(request: Request, service: OurService) -> ModelsAnswer:
    """The models, and what the server accepts."""
    captioner = service.captioner
    return ModelsAnswer(
        version=request.app.version,
        captioner=CaptionerAnswer(
            map=captioner.map_shape,
            confidence=captioner.confidence is not None,
            search=captioner.search,
        ),
        languages=service.languages,
        translators={
            language: TranslatorAnswer.model_validate(translator, from_attributes=True)
            for language, translator in service.translators.items()
        },
        limits=service.limits,
    )


def _language(asked: str | None, offered: Collection[str]) -> str | None:
    """The tag asked for, as it is offered; None for None."""
    if asked is None:
        return None
    tags = {tag.lower(): tag for tag in offered}
    if asked.lower() not in tags:
        raise UserError(f"field 'language' should be {' or '.join(offered)}")
    return tags[asked.lower()]


async def _photos(
    files: Sequence[UploadFile], service: Service, drawn: bool
) -> list[Prepared | UnreadablePhoto]:
    most = service.limits.photos
    if len(files) > most:
        raise UserError(f"field 'photo' has {len(files)} photos, and the limit is {most}")

    async def prepare(file: UploadFile, number: int) -> Prepared | UnreadablePhoto:
        name = _short_name(file) or f"photo {number}"
        try:
            return await service.prepare(await file.read(), name, drawn)
        except UserError as error:
            return UnreadablePhoto(name=name, error=str(error))

    return await asyncio.gather(*map(prepare, files, itertools.count(1)))


def _short_name(file: UploadFile) -> str:
    """The name of an uploaded file, on one line, without folders; empty for none."""
    name = printable((file.filename or "").replace("\\", "/").rpartition("/")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _refuse_unreadable(read: Sequence[Prepared | UnreadablePhoto]) -> None:
    raise UserError("; ".join(each.error for each in read if isinstance(each, UnreadablePhoto)))
