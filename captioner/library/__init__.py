"""People's photo libraries, behind one gate: reads, writes and takes out words about photos.

Other rooms use these names alone; XMP, EXIF, IPTC, sidecars and exiftool stay behind them.
"""

from captioner.library.beside import ENDINGS
from captioner.library.following import follow, strays
from captioner.library.gate import Library
from captioner.library.words import Description, Places, Words, Written

__all__ = ["ENDINGS", "Description", "Library", "Places", "Words", "Written", "follow", "strays"]
