"""The HTTP interface: what each address under /api/ takes and answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from captioner.caption import Caption
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.fields import to_mapping
from captioner.render import PagePhoto
from captioner.serve.answers import captions_of, json_answer, translations_of
from captioner.serve.limits import Place
from captioner.serve.openapi import description
from captioner.serve.overlays import FORMATS, Drawing, Written, captions_from_json
from captioner.serve.photos import Prepared, keep_nothing, keep_small
from captioner.serve.problems import Problem, field_problem, too_slow
from captioner.serve.search import from_texts, option_names, search_with
from captioner.serve.service import Failed, Service
from captioner.serve.uploads import Form, parse_json, read_form, read_json
from captioner.vision.vgg import map_size

Answer = TypeVar("Answer")


class Interface:
    """The addresses of the HTTP interface, over a `Service`. version: of the package."""

    def __init__(self, service: Service, version: str) -> None:
        self._version = version
        self._service = service
        self._limits = service.limits

    def routes(self) -> list[Route]:
        """What is to be routed under /api."""
        return [
            Route("/caption", self.caption, methods=["POST"]),
            Route("/overlay", self.overlay, methods=["POST"]),
            Route("/translate", self.translate, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/model", self.model, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def caption(self, request: Request) -> Response:
        """Captions of the photos of a form."""
        with self._service.admission.place() as place:
            form = await read_form(request, place, self._limits)
            search = self._search(form, ("maps", "preview"))
            maps, preview = _flag(form, "maps", True), _flag(form, "preview", False)
            keep: Callable[..., PagePhoto | None] = PagePhoto.of if preview else keep_nothing
            read = await self._wait(request, place, self._service.read(form.photos, keep))
            photos = [each for each in read if isinstance(each, Prepared)]
            failed = [each for each in read if isinstance(each, Failed)]
            if not photos:
                raise Problem(422, "; ".join(each.reason for each in failed))
            captions = iter(await self._wait(request, place, self._service.caption(photos, search)))
            answers = [
                {"name": each.name, "error": each.reason}
                if isinstance(each, Failed)
                else _photo(each, next(captions), maps)
                for each in read
            ]
            return json_answer({"photos": answers})

    async def overlay(self, request: Request) -> Response:
        """A file in which captions are drawn over the photos of a form."""
        with self._service.admission.place() as place:
            form = await read_form(request, place, self._limits)
            kind = form.text("format") or "png"
            if kind not in FORMATS:
                raise field_problem("format", f"should be one of {', '.join(FORMATS)}")
            file = FORMATS[kind]
            if len(form.photos) > 1 and not file.many:
                raise field_problem("photo", f"is there more than once, but a {kind} holds one")
            strength = _strength(form)
            given = [
                captions_from_json(parse_json(text), self._limits)
                for text in form.fields.get("captions", [])
            ]
            search = self._search(form, ("format", "strength", "captions"))
            if given and len(given) != len(form.photos):
                raise field_problem("captions", "should be there once for every photo, or not")
            read = await self._wait(request, place, self._service.read(form.photos, keep_small))
            failed = [each.reason for each in read if isinstance(each, Failed)]
            if failed:
                raise Problem(422, "; ".join(failed))
            photos = [each for each in read if isinstance(each, Prepared)]
            if not given:
                found = await self._wait(request, place, self._service.caption(photos, search))
                given = [_written(caption) for caption in found]
            drawings = [
                Drawing(photo.name, *photo.kept, captions)
                for photo, captions in zip(photos, given, strict=True)
            ]
            content = await self._wait(request, place, self._service.draw(file, drawings, strength))
            headers = {"Content-Disposition": f'attachment; filename="captions.{kind}"'}
            return Response(content, 200, headers, file.media_type)

    async def translate(self, request: Request) -> Response:
        """Translations of the sentences of a JSON object."""
        translator = self._service.translator
        if translator is None:
            raise Problem(404, "there is no translation model here")
        with self._service.admission.place() as place:
            given = await read_json(request, place, self._limits)
            sentences = self._sentences(given.pop("sentences", None))
            search = search_with(given, translator.search, self._limits)
            place.take_items(len(sentences))
            try:
                found = await self._wait(request, place, self._service.translate(sentences, search))
            except UserError as error:  # What this model cannot do, such as copy_unknown.
                raise Problem(422, str(error)) from None
            answers = [
                {"source": sentence, "translations": translations_of(translation)}
                for sentence, translation in zip(sentences, found, strict=True)
            ]
            return json_answer({"translations": answers})

    async def health(self, request: Request) -> Response:
        """That the server answers, and how much is waiting."""
        waiting = self._service.admission.waiting
        return json_answer({"status": "ok", "waiting": waiting})

    async def model(self, request: Request) -> Response:
        """What the models are, and what the server takes in."""
        captions, translator = self._service.captioner, self._service.translator
        size = captions.preprocessing.size
        weights = (*captions.encoder.parameters(), *captions.decoder.parameters())
        answer: dict[str, Any] = {
            "version": self._version,
            "captioner": {
                "parameters": sum(each.numel() for each in weights),
                "words": len(captions.vocabulary),
                "map": list(map_size(size, size)),
                "confidence": captions.confidence is not None,
                "search": to_mapping(captions.search),
            },
            "translator": None,
            "limits": to_mapping(self._limits),
        }
        if translator is not None:
            answer["translator"] = {
                "parameters": sum(each.numel() for each in translator.model.parameters()),
                "source_tokens": len(translator.source),
                "target_tokens": len(translator.target),
                "attends": translator.attends,
                "maximum_source_length": translator.maximum_source_length,
                "search": to_mapping(translator.search),
            }
        return json_answer(answer)

    async def openapi(self, request: Request) -> Response:
        """The description of all this."""
        return json_answer(description(self._limits, self._version))

    def _search(self, form: Form, other: Sequence[str]) -> SearchOptions:
        """The search that a form asks for; `other` fields of it are not of the search.

        Raises `Problem` with status 422 naming the field that is wrong.
        """
        own = self._service.captioner.search
        for name in form.fields:
            if name not in (*option_names(type(own)), *other):
                known = ", ".join(("photo", *other, *option_names(type(own))))
                raise Problem(422, f"unknown field {name[:60]!r}; there are {known}")
        texts = {name: form.text(name) or "" for name in form.fields if name not in other}
        return search_with(from_texts(texts, type(own)), own, self._limits)

    def _sentences(self, value: Any) -> list[str]:
        if not isinstance(value, list) or not 0 < len(value) <= self._limits.sentences:
            most = self._limits.sentences
            raise field_problem("sentences", f"should be a list of 1 to {most} texts")
        for sentence in value:
            if not isinstance(sentence, str):
                raise field_problem("sentences", "holds something that is not text")
            if len(sentence) > self._limits.characters:
                most = self._limits.characters
                raise field_problem("sentences", f"holds a text of more than {most:,} characters")
            if any("\ud800" <= letter <= "\udfff" for letter in sentence):
                raise field_problem("sentences", "holds half of a character")
        return value

    async def _wait(self, request: Request, place: Place, answer: Awaitable[Answer]) -> Answer:
        """The answer, unless it takes too long or nobody waits for it any more.

        Raises `Problem` with status 503 when it takes longer than the limit.
        """
        work = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                (work, gone), timeout=place.seconds_left, return_when=asyncio.FIRST_COMPLETED
            )
            if work.done():
                return work.result()
            if gone.done():
                raise Problem(400, "nobody waits for the answer")
            raise too_slow(place.seconds)
        finally:
            work.cancel()
            gone.cancel()


async def _gone(request: Request) -> None:
    """Return when the other side has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _photo(photo: Prepared[PagePhoto | None], caption: Caption, maps: bool) -> dict[str, Any]:
    width, height = photo.size
    answer: dict[str, Any] = {
        "name": photo.name,
        "width": width,
        "height": height,
        "region": list(photo.region),
        "captions": captions_of(caption, maps),
    }
    if photo.kept is not None:
        answer["preview"] = photo.kept.address
    return answer


def _written(caption: Caption) -> list[Written]:
    """A caption and its alternatives, as far as they have words to draw."""
    found = [Written.of(each) for each in (caption, *caption.alternatives) if each.words]
    if not found:
        raise Problem(422, "the caption has no words to draw")
    return found


def _flag(form: Form, name: str, default: bool) -> bool:
    text = form.text(name)
    if text not in (None, "true", "false"):
        raise field_problem(name, f"should be true or false, found {text[:60]!r}")
    return default if text is None else text == "true"


def _strength(form: Form) -> float:
    text = form.text("strength")
    try:
        strength = 0.8 if text is None else float(text)
    except ValueError:
        strength = math.nan
    if not 0 <= strength <= 1:
        raise field_problem("strength", "should be a number from 0 to 1")
    return strength
