"""The config of a translator, for every engine; imports no torch."""

from pydantic import ConfigDict, Field

from captioner.decoding.options import TranslationSearch
from captioner.models.translation_config import TranslationNetworksConfig
from captioner.schema import Count, Probability
from captioner.text.languages import Capitals


class TranslatorConfig(TranslationNetworksConfig):
    """The fields of `config.json`. The default of a new field is what older models mean."""

    model_config = ConfigDict(extra="forbid")

    format: str
    maximum_source_length: Count
    search: TranslationSearch
    capitals: Capitals = "keep"
    unsure_below: Probability = Field(0.5, description="translations of less are not sure")
    files: dict[str, str] = Field(default_factory=dict)  # Digests; see `ModelFolder.check`.
