"""Decoders of fields: they turn the bytes of a field into a value, in Python or by graph operations.

Nothing in a file is executed, nothing is unpickled, and no link out of an HDF5 file is followed.
"""

from __future__ import annotations

from ais_tar2tf.values.decoders.choice import Decode, choose_decoding
from ais_tar2tf.values.decoders.decoder import Decoder

__all__ = ["Decode", "Decoder", "choose_decoding"]
