"""The changes of a config that `captioner train --encoder` stands for."""

import json
from pathlib import Path

from captioner.data.readers import format_of
from captioner.errors import UserError
from captioner.runs.captioning_recipe import EncoderRecipe
from captioner.runs.read_recipe import read_recipe


def encoder_changes(config: str, name: str) -> list[str]:
    """Replace a config's encoder, for `read_recipe`; fields that every family has are kept."""
    if format_of(Path(config)) is not None:
        raise UserError("--encoder is for configs; photos take the encoder of --start-from")
    common = {*EncoderRecipe.model_fields} - {"digest"}  # That of the old weights.
    encoder = read_recipe(config).encoder.model_dump(mode="json", include=common)
    encoder |= {"name": name, "weights": "pretrained"}
    # Stored annotation vectors of the config belong to the encoder it names.
    return [f"encoder={json.dumps(encoder)}", "features.folder=null"]
