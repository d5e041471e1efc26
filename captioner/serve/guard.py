"""Checks who asks, how much comes and how long it takes; answers errors; adds headers."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from secrets import compare_digest

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic_core import ErrorDetails
from starlette.datastructures import FormData, Headers, MutableHeaders, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.errors import UserError, did_you_mean, near_names
from captioner.schema import error_sentence
from captioner.serve import Limits

_AGAIN = {"Retry-After": "2"}
_HELD_UPLOADS = 3  # Largest contents that fit in memory together; more large ones are refused.
_SMALL = 1024**2  # Bytes up to which a content is not large.
_LARGEST_TEXT = 2**19  # Bytes of a content in JSON, which take twenty times as many.
_LARGEST_FIELDS = 2**22  # Characters of the fields of a form beside its files.
_LISTS = ("captions", "photo")
_MAY_BE_EMPTY = ("without", "begin", "language", *_LISTS)
_NOT_JSON = "the content should be a JSON object, of fields with values, as application/json"
_SEND_FILES = "; send files in a form, as curl -F photo=@photo.jpg does: addresses are not fetched"

BEARER = HTTPBearer(auto_error=False)

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
"""File names and captions on the page come from outside: a browser runs only the page's scripts."""


def guarded_app(app: ASGIApp, allowed_hosts: Iterable[str]) -> ASGIApp:
    """Refuses requests to other host names, adds headers to all answers, answers HEAD as GET.

    Refuses a content with a length that is chunked too: a proxy may read another content out of it
    (RFC 9112, 6.1). Ignores ranges of bytes: files are small. allowed_hosts: names, and `*.` before
    a name.
    """
    names = "|".join(re.escape(name.lower()) for name in allowed_hosts)
    any_below = names.replace(r"\*", r"[\w.-]+")
    is_own = re.compile(rf"({any_below})(:\d*)?").fullmatch

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        scope = {**scope, "headers": [each for each in scope["headers"] if each[0] != b"range"]}
        if scope["method"] == "HEAD":  # FastAPI refuses it; the server leaves out the content.
            scope["method"] = "GET"
        asked = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_api = scope["path"].startswith("/api/")
                headers["Cache-Control"] = "no-store" if is_api else "no-cache"
                del headers["Accept-Ranges"]
            await send(message)

        inner = app
        host = asked.get("host", "")
        if "transfer-encoding" in asked and "content-length" in asked:
            reason = "the content has a length and is chunked too; send it in one way"
            inner = JSONResponse({"error": reason}, 400, {"Connection": "close"})
        elif not is_own(host.lower()):
            reason = f"host {host[:100]!r} is not one of this server's names"
            inner = JSONResponse({"error": f"{reason}: --allow-host NAME adds one"}, 400)
        await inner(scope, receive, send_with_headers)

    return answer


class JsonCors(CORSMiddleware):
    """Refuses what a page of another site asks for in JSON, as all refusals are."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser's question before a page's request."""
        answer = super().preflight_response(request_headers)
        refusal = {"error": bytes(answer.body).decode()}
        return answer if answer.status_code == 200 else JSONResponse(refusal, answer.status_code)


class GuardedRoute(APIRoute):
    """A route that checks who asks, how many wait, the body's size and the answer's time.

    It refuses fields in the address.
    `app.state` holds the service, the token, the allowed `origins` besides the server's own, how
    many POST requests are `waiting`, and how many bytes of theirs are `held`.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """FastAPI's way to run code before a request's content is read."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            state = request.app.state
            if state.token is not None:
                await _check_token(request, state.token)
            _check_site(request, state.origins)
            for name in request.query_params:
                reason = f"field {name[:100]!r} is in the address; send fields as the content"
                raise HTTPException(422, reason)
            if request.method != "POST":
                return await handle(request)
            limits: Limits = state.service.limits
            if state.waiting >= limits.waiting:
                raise HTTPException(503, "busy: too much is waiting already", _AGAIN)
            content = _Content(request, limits)
            state.waiting += 1
            try:
                return await asyncio.wait_for(handle(content), limits.seconds)
            except asyncio.TimeoutError:
                late = f"busy: the answer was not ready within {limits.seconds:g} seconds"
                raise HTTPException(503, late, _AGAIN) from None
            except asyncio.CancelledError:  # By a second Ctrl-C.
                raise HTTPException(503, "the server is ending", _AGAIN) from None
            finally:
                state.waiting -= 1
                state.held -= content.size

        return guarded


async def _check_token(request: Request, token: str) -> None:
    sent = await BEARER(request)
    if sent is None or not compare_digest(sent.credentials.encode(), token.encode()):
        reason = "the token is missing or wrong: the header is Authorization: Bearer TOKEN"
        raise HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})


def _check_site(request: Request, allowed: Collection[str]) -> None:
    """Refuse other web sites: any can have a visitor's browser ask, which names the site."""
    host = request.headers.get("host", "").lower()
    here = {f"http://{host}", f"https://{host}"}
    origins = set(map(str.lower, request.headers.getlist("origin")))
    sites = request.headers.getlist("sec-fetch-site")
    is_here = origins <= here and {"none", "same-origin"}.issuperset(sites)
    is_allowed = origins and origins.issubset(allowed)
    if not is_here and not is_allowed:
        raise HTTPException(403, "other sites may not use this server without --allow-origin")


class _Content(Request):
    """A request whose content is limited, alone and with all that wait, and stays in memory."""

    def __init__(self, request: Request, limits: Limits) -> None:
        super().__init__(request.scope, self._receive_some)
        self.size = 0
        self._request, self._limits = request, limits
        kind = request.headers.get("content-type", "").lower()
        self._is_form = kind.startswith("multipart/form-data")
        most = limits.upload_bytes
        self._most = most if self._is_form else min(most, _LARGEST_TEXT)

    async def form(self, **options: int) -> FormData:  # type: ignore[override]
        """The files and fields of a form; refuses fields of which FastAPI would take a default.

        Another content has none: Starlette before 1.0 does not limit how many it may have.
        """
        if not self._is_form:
            return FormData()
        try:
            form = await _FormParser(self.headers, self.stream(), **options).parse()
        except MultiPartException as error:
            raise HTTPException(400, error.message) from None
        texts = [(name, text) for name, text in form.multi_items() if isinstance(text, str)]
        if sum(len(text) for _, text in texts) > _LARGEST_FIELDS:
            raise HTTPException(413, f"the fields are larger than {_LARGEST_FIELDS:,} characters")
        for name, text in texts:
            if name not in _LISTS and len(form.getlist(name)) > 1:
                raise HTTPException(422, f"field {name[:100]!r} is given twice")
            if not text and name not in _MAY_BE_EMPTY:
                raise HTTPException(422, f"field {name[:100]!r} is empty; leave it out")
        return form

    async def json(self) -> object:
        """The content; refuses in one way what is no JSON, or too deep for Python."""
        try:
            return json.loads(await self.body(), parse_float=_number)
        except (ValueError, RecursionError):
            raise HTTPException(422, _NOT_JSON) from None

    async def _receive_some(self) -> Message:
        message = await self._request.receive()
        count = len(message.get("body", b""))
        self.size += count
        self.app.state.held += count
        if self.size > self._most:
            raise HTTPException(413, f"the content is larger than {self._most:,} bytes, the limit")
        is_full = self.app.state.held > _HELD_UPLOADS * self._limits.upload_bytes
        if is_full and self.size > _SMALL:
            raise HTTPException(503, "busy: too many large uploads are waiting already", _AGAIN)
        return message


def _number(text: str) -> float:
    """A number of JSON: 3.0 is the whole number 3, as descriptions of JSON have it."""
    number = float(text)
    return int(number) if number.is_integer() else number


class _FormParser(MultiPartParser):
    """Keeps files in memory: photos are private."""

    spool_max_size = 0


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answers an error with a sentence; of a fault, the server's own output has the trace."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        return JSONResponse({"error": _invalid(request, error.errors())}, 422)
    if isinstance(error, UserError):
        return JSONResponse({"error": str(error)}, 422)
    return JSONResponse({"error": "the server failed at this; its own output says how"}, 500)


def _invalid(request: Request, errors: Sequence[ErrorDetails]) -> str:
    """A sentence about the first unknown field, or else the first that is not as declared."""
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    error = (unknown or errors)[0]
    place = error["loc"][1:]  # After "body".
    if not place or isinstance(place[0], int):
        return _NOT_JSON
    lacks_photo = any(other["loc"][1:2] == ("photo",) for other in errors)
    if unknown:
        known = request.scope["route"].body_field.field_info.annotation.model_fields
        meant = did_you_mean(near_names(place[-1], known))
        return f"unknown field {place[-1]!r}{_SEND_FILES if lacks_photo else ''}{meant}"
    if place[0] == "photo":
        return f"field 'photo' is missing or text{_SEND_FILES}"
    if isinstance(error["input"], UploadFile):
        return f"field {place[0]!r} is a file; send it as text"
    return error_sentence(error, place)
