"""Translation models on the shared attention core and decoder loop."""

from captioner.decoding import TranslationSearch as TranslationSearch
from captioner.translate.bahdanau import Bahdanau as Bahdanau
from captioner.translate.bahdanau import BahdanauConfig as BahdanauConfig
from captioner.translate.gnmt import GNMT as GNMT
from captioner.translate.gnmt import GNMTConfig as GNMTConfig
from captioner.translate.luong import Luong as Luong
from captioner.translate.luong import LuongConfig as LuongConfig
from captioner.translate.model import TranslationLoss as TranslationLoss
from captioner.translate.model import TranslationModel as TranslationModel
from captioner.translate.model import TranslationObjective as TranslationObjective
from captioner.translate.recurrent import SequenceToSequence as SequenceToSequence
from captioner.translate.recurrent import SequenceToSequenceConfig as SequenceToSequenceConfig
from captioner.translate.recurrent import SourceMemory as SourceMemory
from captioner.translate.transformer import Transformer as Transformer
from captioner.translate.transformer import TransformerConfig as TransformerConfig
from captioner.translate.translation import Translation as Translation
from captioner.translate.translator import TranslationModelConfig as TranslationModelConfig
from captioner.translate.translator import Translator as Translator
from captioner.translate.translator_folder import load_translator as load_translator
from captioner.translate.translator_folder import save_translator as save_translator
