"""`captioner.load` and what the package shows of itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import captioner
from captioner.caption.folder import load_model
from captioner.errors import UserError
from captioner.loading import LANGUAGES, load_translation
from captioner.model_folders import DEMO_PHOTO, model_folder


def test_the_package_lists_what_is_for_users() -> None:
    assert dir(captioner) == sorted({*captioner.__all__, "__version__"})
    assert {"load", "Caption", "Failed", "SearchOptions", "load_translator"} < set(dir(captioner))
    assert [name for name in dir(captioner) if not hasattr(captioner, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        captioner.lod  # noqa: B018


def test_a_translator_is_found_by_name_or_folder(tiny_model: Path) -> None:
    packaged = captioner.load_translator()
    folder = Path(captioner.__file__).parent / "packaged" / "english_german"
    found = captioner.load_translator(folder, torch.device("cpu"))
    tokens = "6,000 source and 6,000 target tokens"
    assert repr(found) == f"Translator(transformer on cpu, {tokens}, by graphs)"
    again = captioner.load_translator(folder, engine="torch")
    assert repr(again) == f"Translator(transformer on cpu, {tokens}, by torch)"
    assert type(found) is type(again) is captioner.Translator
    assert found.target.to_json() == packaged.target.to_json()
    with pytest.raises(UserError, match="tpu7"):
        captioner.load(tiny_model, "tpu7")
    with pytest.raises(UserError, match="english_german is a translator, not a captioner"):
        captioner.load(folder)


def test_captions_are_in_the_language_asked_for(tiny_model: Path, tmp_path: Path) -> None:
    model = captioner.load(tiny_model)
    english = model.caption(DEMO_PHOTO)
    german = captioner.translate_captions(english, captioner.load_translator(), "de")
    assert model.caption(DEMO_PHOTO, language="DE").to_dict() == german.to_dict()
    assert german.text != english.text
    assert german.language == "de"
    found = model.caption(["none.jpg", DEMO_PHOTO], language="de", on_error="skip")
    assert [str(each) for each in found] == ["none.jpg does not exist", german.text]
    for region in ("en", "en-US"):
        assert model.caption(DEMO_PHOTO, language=region) == english
    needed = "captions in the language 'it' need a translator; the package has de, fr"
    with pytest.raises(UserError, match=needed):
        model.caption(DEMO_PHOTO, language="it")
    texts = set()
    for name in LANGUAGES.values():  # The second is trained anew in place of the first.
        shutil.copytree(model_folder(name), tmp_path, dirs_exist_ok=True)
        texts |= {each.text for each in load_translation("de", tmp_path)([english])}
    assert len(texts) == 2
    with pytest.raises(UserError, match=r"captions are in English: captioner\.load gives one"):
        load_model(tiny_model).caption(DEMO_PHOTO, language="de")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_model_with_a_damaged_file_is_refused_in_a_sentence_or_captions(
    tiny_model: Path, data: st.DataObject
) -> None:
    file = tiny_model / data.draw(st.sampled_from(sorted(os.listdir(tiny_model))))
    whole = file.read_bytes()
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    new = data.draw(st.binary(max_size=20) | st.sampled_from([b"null", b"-1", b"1e999", b"[]"]))
    file.write_bytes(damaged := whole[:first] + new + whole[last:])
    refusal = ""
    try:
        captioner.load(tiny_model, precision="float32").caption(DEMO_PHOTO)
    except UserError as error:
        refusal = str(error)
    finally:
        file.write_bytes(whole)
    assert "\n" not in refusal
    assert refusal or damaged == whole or file.suffix != ".safetensors"


@pytest.mark.slow
def test_importing_and_loading_leave_the_program_around_as_it_was() -> None:
    """Warnings, logging, TF32 and Starlette's classes belong to the program that imports."""
    program = """
import importlib, logging, pkgutil, warnings
import fastapi_offline, matplotlib.pyplot, onnxruntime, torch, torchvision
from PIL import Image
from starlette.formparsers import MultiPartParser

def state():
    root = logging.getLogger()
    backends = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    parser = dict(vars(MultiPartParser))
    logs = root.level, list(root.handlers), root.manager.disable, logging.getLogger("PIL").handlers
    precision = torch.get_float32_matmul_precision()
    return list(warnings.filters), logs, backends, precision, parser, Image.MAX_IMAGE_PIXELS

before = state()
import captioner
for module in pkgutil.walk_packages(captioner.__path__, "captioner."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
captioner.load(device="cpu").caption(captioner.model_folders.DEMO_PHOTO)
from captioner.serve import app, service
app.make_app(service.Service(captioner.load(device="cpu")))
after = state()
assert before == after, [pair for pair in zip(before, after) if pair[0] != pair[1]]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
