"""Fetches models from a hub and publishes them there, by huggingface_hub.

An address is `hf://user/name` or `hf://user/name@revision`: a branch, a tag or a commit.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePath

from captioner.errors import UserError, refuse_missing
from captioner.model_folders import CARD, CONFIG, WEIGHTS, kind_of

FILES = (WEIGHTS, CONFIG, "vocabulary.json", "source.json", "target.json", CARD)
"""No other file is downloaded or uploaded."""

_NAME = r"\w[\w.-]*/\w[\w.-]*"
_ADDRESS = re.compile(rf"hf:/+({_NAME})(?:@((?!.*\.\.)\w[\w./-]*))?", re.ASCII)


def is_address(name: str | os.PathLike[str]) -> bool:
    """Whether a model's name is an address, also as a `Path`, which drops a slash."""
    return PurePath(name).as_posix().startswith("hf:/")


def _parse(name: str | os.PathLike[str]) -> tuple[str, str, str | None]:
    """An address, its repository and its revision; None for the newest commit."""
    path = PurePath(name).as_posix()
    found = _ADDRESS.fullmatch(path)
    if found is None:
        raise UserError(f"{name} is not of the form hf://user/name or hf://user/name@revision")
    return path.replace(":/", "://", 1), found[1], found[2]


def fetch_model(name: str | os.PathLike[str]) -> Path:
    """The cached folder of a model, which is named by its commit; downloads what is not cached.

    The config comes first: a repository of another kind is refused before its weights.
    """
    address, repository, revision = _parse(name)
    with _explained(address):
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=CONFIG))
        if kind_of(folder) is None:
            raise UserError(f"{address} is no captioner or translator: it has no {CONFIG} of one")
    with _explained(address, has_bars=not (folder / WEIGHTS).exists()):
        snapshot_download(repository, revision=folder.name, allow_patterns=list(FILES))
    return folder


def pinned(name: str) -> str:
    """The name of a model; an address with its commit."""
    if not is_address(name):
        return name
    return f"hf://{_parse(name)[1]}@{fetch_model(name).name}"


def push_model(folder: Path, name: str, private: bool = False) -> str:
    """Upload the files of a model in one commit, and return the address with the commit.

    The repository is created if needed. private: refuse one that is public.
    """
    address, repository, revision = _parse(name if is_address(name) else f"hf://{name}")
    if revision:
        raise UserError(f"{address} names a revision, which a push makes; leave it out")
    with _explained(address, has_bars=True):
        from huggingface_hub import CommitOperationAdd, HfApi

        hub = HfApi()
        # None: the rule of the user or the organisation.
        hub.create_repo(repository, private=private or None, exist_ok=True)
        if private and not hub.repo_info(repository).private:
            raise UserError(f"{address} is public already; make it private there, or leave it")
        files = [file for file in FILES if (folder / file).is_file()]
        additions = [CommitOperationAdd(file, folder / file) for file in files]
        commit = hub.create_commit(repository, additions, commit_message="captioner push")
    return f"hf://{repository}@{commit.oid}"


@contextmanager
def _explained(address: str, has_bars: bool = False) -> Iterator[None]:
    """Turns errors of huggingface_hub into one sentence, and silences its warnings.

    has_bars: shows its progress, on a terminal.
    """
    with refuse_missing(f"{address} needs huggingface_hub", "hub"):
        from huggingface_hub import errors

        utils = import_module("huggingface_hub.utils")
    verbosity = utils.logging.get_verbosity()
    utils.logging.set_verbosity(logging.ERROR)
    hides_bars = not (utils.are_progress_bars_disabled() or (has_bars and sys.stderr.isatty()))
    if hides_bars:
        utils.disable_progress_bars()
    try:
        yield
        return
    except UserError:
        raise
    except errors.OfflineModeIsEnabled:
        reason = "cannot be reached offline; unset HF_HUB_OFFLINE"
    except errors.LocalEntryNotFoundError:
        reason = "is not in the cache, and the hub cannot be reached; download it once with network"
    except errors.RevisionNotFoundError:
        reason = "is no revision of this model; name a branch, a tag or a whole commit"
    except errors.HFValidationError as error:
        reason = f"is not an address: {error}"
    except Exception as error:  # Of requests or httpx, by version: they have no common class.
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = f"cannot be reached: {error or type(error).__name__}"
        if status in (401, 403, 404):
            reason = "does not exist or is not yours to use; log in by hf auth login or HF_TOKEN"
    finally:
        utils.logging.set_verbosity(verbosity)
        if hides_bars:
            utils.enable_progress_bars()
    raise UserError(f"{address} {' '.join(reason.split())}") from None
