"""A file's bytes → what they say: in Python for plain records, as graph operations for datasets. Nothing runs that is
in them: no pickle, no links out of an HDF5 file.
"""

from __future__ import annotations

from ais_tar2tf.decoders._choice import DECODABLE, Decode, Decoding, decoding_of
from ais_tar2tf.decoders._decoder import Decoder

__all__ = ["DECODABLE", "Decode", "Decoder", "Decoding", "decoding_of"]
