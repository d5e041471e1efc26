"""The attention core of captions and translations: score functions, selection, memory."""

from captioner.attention.attention import Attention as Attention
from captioner.attention.attention import LocalAttention as LocalAttention
from captioner.attention.attention import MultiHeadAttention as MultiHeadAttention
from captioner.attention.attention import PredictedCentre as PredictedCentre
from captioner.attention.memory import Memory as Memory
from captioner.attention.memory import checked_mask as checked_mask
from captioner.attention.scores import AdditiveScore as AdditiveScore
from captioner.attention.scores import ConcatScore as ConcatScore
from captioner.attention.scores import DotScore as DotScore
from captioner.attention.scores import GeneralScore as GeneralScore
from captioner.attention.scores import ScaledDotProductScore as ScaledDotProductScore
from captioner.attention.scores import Score as Score
from captioner.attention.selection import Attended as Attended
from captioner.attention.selection import HardSelection as HardSelection
from captioner.attention.selection import SoftSelection as SoftSelection
from captioner.attention.selection import draw as draw
from captioner.attention.selection import masked_softmax as masked_softmax
from captioner.attention.transformer import causal_mask as causal_mask
