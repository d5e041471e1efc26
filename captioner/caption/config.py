"""The config of a captioner, for every engine; imports no torch."""

from pydantic import ConfigDict, Field

from captioner.caption.confidence import Confidence
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.files import StrPath, read_json
from captioner.foreign_models import TRANSFORMERS
from captioner.model_folders import CONFIG, ModelFolder
from captioner.models.caption_config import CaptionNetworksConfig
from captioner.schema import Config, from_mapping


class CaptionerConfig(Config):
    """What a captioner has besides networks, whatever computes it; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    search: SearchOptions = Field(default_factory=SearchOptions)
    confidence: Confidence | None = None


class Calibration(Config):
    """A confidence in a file. model: `ModelFolder.digest` of its model."""

    model: str
    confidence: Confidence


def read_calibration(path: StrPath, folder: ModelFolder) -> Confidence:
    """The confidence in a file of `captioner calibrate --out`; refuses one of another model."""
    where = f"calibration {path}"
    calibration = from_mapping(Calibration, read_json(path, "calibration"), where)
    if calibration.model != folder.digest:
        raise UserError(f"{where} is of other weights than {folder.path}: calibrate this model")
    return calibration.confidence


class ModelConfig(CaptionNetworksConfig, CaptionerConfig):
    """The fields of `config.json`. The default of a new field is what older models mean."""

    model_config = ConfigDict(extra="forbid")

    format: str
    search: SearchOptions
    files: dict[str, str] = Field(default_factory=dict)  # Digests; see `ModelFolder.check`.


def captioner_config(folder: ModelFolder) -> CaptionerConfig:
    """The search and the confidence of a model folder, of any backend."""
    if folder.backend == TRANSFORMERS:
        from captioner.backends.transformers_models import default_search

        return CaptionerConfig(search=default_search(folder))
    if folder.backend is None:
        return folder.read("captioner", ModelConfig)
    return from_mapping(CaptionerConfig, folder.config, str(folder.files / CONFIG))
