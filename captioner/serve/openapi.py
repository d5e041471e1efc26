"""The description of the HTTP interface, as OpenAPI 3.1 has it."""

from __future__ import annotations

from typing import Any

from captioner.decoding import SearchOptions
from captioner.schema import plain_type
from captioner.serve.limits import Limits
from captioner.serve.overlays import FORMATS
from captioner.translate import TranslationSearch

_TYPES = {int: "integer", float: "number", bool: "boolean"}

_SEARCH = {
    "beam": "beam size; 1 is greedy search",
    "n_best": "how many are given, best first",
    "length_normalisation": "divide log-probabilities by ((5 + length) / 6) to this power",
    "minimum_length": "words, at least",
    "maximum_length": "words, at most",
    "block_ngrams": "no so many words in a row twice; 0 for no such rule",
    "repeat_distance": "no word (of translations, no token) among the so many after it, but for a "
    "caption's function words; 0 for no such rule",
    "sample": "draw instead of searching",
    "temperature": "of sampling: below 1 is safer",
    "top_k": "of sampling: only so many of the likeliest words; 0 for all",
    "top_p": "of sampling: only the likeliest words of this much of the mass",
    "seed": "of sampling",
    "coverage_penalty": "rank lower what did not look at all of its source (GNMT)",
    "copy_unknown": "put the source's word where the model knows none",
}

_RANGES: dict[str, dict[str, float]] = {
    "beam": {"minimum": 1},
    "n_best": {"minimum": 1},
    "length_normalisation": {"minimum": 0, "maximum": 10},
    "minimum_length": {"minimum": 0},
    "maximum_length": {"minimum": 1},
    "block_ngrams": {"minimum": 0},
    "repeat_distance": {"minimum": 0},
    "temperature": {"exclusiveMinimum": 0},
    "top_k": {"minimum": 0},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "seed": {"minimum": 0, "exclusiveMaximum": 2**63},
    "coverage_penalty": {"minimum": 0, "maximum": 10},
}

_BUSY = {
    "description": "Busy; try again after as many seconds as Retry-After says.",
    "headers": {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
}


def description(limits: Limits, version: str) -> dict[str, Any]:
    """The whole description, with the limits of this server; version: of the package."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "captioner",
            "version": version,
            "description": "Captions of photos with maps of where the model looked for each word, "
            "and translations with their alignments.",
        },
        "paths": {
            "/api/caption": {"post": _caption(limits)},
            "/api/overlay": {"post": _overlay(limits)},
            "/api/translate": {"post": _translate(limits)},
            "/api/health": {"get": _get("Whether the server answers", "Health")},
            "/api/model": {"get": _get("What the models are, and the limits", "Model")},
            "/api/openapi.json": {"get": _get("This description", None)},
        },
        "components": {"schemas": _schemas()},
    }


def _caption(limits: Limits) -> dict[str, Any]:
    form = _photos(limits) | {
        "maps": {"type": "boolean", "default": True, "description": "whether to give the maps"},
        "preview": {
            "type": "boolean",
            "default": False,
            "description": "whether to give the photo as well, upright, as a JPEG of at most 1000 "
            "pixels a side in a data address",
        },
    }
    return {
        "operationId": "caption",
        "summary": "Captions of photos, and where the model looked",
        "description": "A photo that cannot be read has an error in its place; where none can, the "
        "status is 422.",
        "requestBody": _form(form | _search(SearchOptions, limits), ["photo"]),
        "responses": {"200": _json("Captions", "in the order of the photos")}
        | _problems(400, 403, 408, 413, 415, 422, 503),
    }


def _overlay(limits: Limits) -> dict[str, Any]:
    form = _photos(limits) | {
        "format": {"type": "string", "enum": list(FORMATS), "default": "png"},
        "strength": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.8},
        "captions": {
            "type": "array",
            "items": {"type": "string"},
            "description": "for every photo, as JSON, the 'captions' that /api/caption answered; "
            "without them the photos are captioned first",
        },
    }
    content: dict[str, Any] = {file.media_type.partition(";")[0]: {} for file in FORMATS.values()}
    return {
        "operationId": "overlay",
        "summary": "Maps drawn over photos: panels, an animation, or a page",
        "requestBody": _form(form | _search(SearchOptions, limits), ["photo"]),
        "responses": {"200": {"description": "The file.", "content": content}}
        | _problems(400, 403, 408, 413, 415, 422, 503),
    }


def _translate(limits: Limits) -> dict[str, Any]:
    text = {"type": "string", "maxLength": limits.characters}
    sentences = {"type": "array", "items": text, "minItems": 1, "maxItems": limits.sentences}
    schema = {
        "type": "object",
        "properties": {"sentences": sentences, **_search(TranslationSearch, limits)},
        "required": ["sentences"],
        "additionalProperties": False,
    }
    return {
        "operationId": "translate",
        "summary": "Translations of sentences, and their alignments",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": _json("Translations", "in the order of the sentences")}
        | _problems(400, 403, 404, 408, 413, 415, 422, 503),
    }


def _get(summary: str, schema: str | None) -> dict[str, Any]:
    answer = (
        _json(schema, "of now")
        if schema
        else {
            "description": "OpenAPI 3.1.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    )
    return {"summary": summary, "responses": {"200": answer} | _problems(403)}


def _photos(limits: Limits) -> dict[str, Any]:
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    return {
        "photo": {
            "type": "array",
            "items": file,
            "minItems": 1,
            "maxItems": limits.photos,
            "description": f"files, of {limits.pixels:,} pixels at most; all together, the form "
            f"has at most {limits.upload_bytes:,} bytes",
        }
    }


def _search(kind: type[SearchOptions], limits: Limits) -> dict[str, Any]:
    """The fields of a search; what is not given is the model's own."""
    most = {"beam": limits.beam, "n_best": limits.beam, "maximum_length": limits.words}
    found = {}
    for name, field in kind.model_fields.items():
        kind_name, about = _TYPES[plain_type(field.annotation)], _SEARCH[name]
        schema: dict[str, Any] = {"type": kind_name, "description": about}
        schema |= _RANGES.get(name, {})
        if name in most:
            schema["maximum"] = most[name]
        found[name] = schema
    return found


def _form(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


def _json(schema: str, about: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {
        "description": f"{schema}, {about}.",
        "content": {"application/json": {"schema": reference}},
    }


def _problems(*statuses: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    named = {
        400: "The content cannot be read.",
        403: "The request comes from another site, or is meant for another host.",
        404: "There is no translation model.",
        408: "The content came too slowly.",
        413: "The content is too large.",
        415: "The content is of another type.",
        422: "A field or a photo cannot be used.",
    }
    found: dict[str, Any] = {}
    for status in statuses:
        about = _BUSY if status == 503 else {"description": named[status]}
        found[str(status)] = about | {"content": content}
    return found


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _schemas() -> dict[str, Any]:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    flag: dict[str, Any] = {"type": "boolean"}
    score = number | {
        "description": "what they are ranked by: the log-probability after length "
        "normalisation, and of translations the coverage penalty"
    }
    share = {"type": "number", "minimum": 0, "maximum": 1}
    maps = _list(_list(_list(share)), description="for each word a map, row by row")
    confidence = {
        "confidence": share | {"description": "the share of the content words that are expected"},
        "sure": flag,
        "familiar": flag,
        "confidence_in_words": text,
    }
    caption = {
        "caption": text,
        "words": _list(text),
        "score": score,
        "log_probability": number | {"description": "natural logarithm, the ending included"},
        "word_log_probabilities": _list(number),
    }
    photo = {
        "name": text,
        "width": whole,
        "height": whole,
        "region": _list(number, minItems=4, maxItems=4)
        | {"description": "left, top, right, bottom in pixels: what the maps cover"},
        "captions": _list(_object(caption, confidence | {"maps": maps}), minItems=1),
    }
    translation = {
        "translation": text,
        "source_tokens": _list(text),
        "tokens": _list(text),
        "score": score,
        "log_probability": number,
        "token_log_probabilities": _list(number),
        "alignment": _list(_list(number), description="a row for each token that was written"),
        "source_words": _list(text, description="what the source's tokens make"),
        "words": _list(text, description="what the tokens that were written make"),
        "word_alignment": _list(
            _list(number), description="a row for each word, a column for each word of the source"
        ),
    }
    shortened = {
        "truncated": whole | {"description": "tokens at the end that were not read"},
        "cut": flag | {"description": "whether it had to end at the longest length"},
    }
    translated = {
        "source": text,
        "translations": _list(_object(translation, shortened), minItems=1),
    }
    either = {"anyOf": [_object(photo, {"preview": text}), _object({"name": text, "error": text})]}
    models = {
        "version": text,
        "captioner": {"type": "object"},
        "translator": {"type": ["object", "null"]},
        "limits": {"type": "object"},
    }
    return {
        "Problem": _object({"error": text | {"description": "one sentence that says why"}}),
        "Captions": _object({"photos": _list(either)}),
        "Translations": _object({"translations": _list(_object(translated))}),
        "Health": _object({"status": {"const": "ok"}, "waiting": whole | {"minimum": 0}}),
        "Model": _object(models),
    }
