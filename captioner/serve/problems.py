"""Refusals: a status and one sentence, as `{"error": "..."}`."""

from __future__ import annotations

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as FrameworkError

from captioner.errors import did_you_mean, near_names
from captioner.schema import error_sentence

Problem = HTTPException
"""Refuses a request, by a status and a sentence that names the field and says why.

The sentence says nothing about this machine.
"""


class ProblemAnswer(BaseModel):
    """Why a request is refused."""

    error: str = Field(description="one sentence")


def busy(reason: str) -> Problem:
    """Too much waits; another try is worth it after a few seconds."""
    return Problem(503, f"busy: {reason}", {"Retry-After": "2"})


def field_problem(field: str, sentence: str) -> Problem:
    """A field has a value that cannot be used."""
    return Problem(422, f"field {field!r} {sentence}")


def answer_problem(problem: FrameworkError) -> JSONResponse:
    """The answer that carries a problem."""
    sentence = problem.detail.encode("utf-8", "replace").decode()  # Half a character, in a name.
    return JSONResponse({"error": sentence}, problem.status_code, problem.headers)


async def on_problem(request: Request, error: Exception) -> JSONResponse:
    """Answers our refusals and those of the framework, such as 404."""
    assert isinstance(error, FrameworkError)
    return answer_problem(error)


async def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answers a request whose fields do not fit the declared ones, by the first that does not."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = first["loc"][1:]  # After "body".
    if first["type"] == "json_invalid":
        return answer_problem(Problem(400, "the content is not JSON that can be read"))
    if not place:
        sentence = "the content should be a JSON object, of fields with values, as application/json"
    elif first["type"] == "extra_forbidden":
        known = request.scope["route"].body_field.field_info.annotation.model_fields
        sentence = f"unknown field {place[-1]!r}{did_you_mean(near_names(place[-1], known))}"
    else:
        sentence = error_sentence(first, place)
        if sentence == "field 'photo' is missing":
            sentence += ": send a form with it, as curl -F photo=@photo.jpg does"
    return answer_problem(Problem(422, sentence))


async def on_fault(request: Request, error: Exception) -> JSONResponse:
    """Answers with no detail where the server failed; the server's own output has the trace."""
    return answer_problem(Problem(500, "the server failed at this; its own output says how"))
