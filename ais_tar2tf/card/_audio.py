"""How long a recording is, from its header. Nothing is decoded; no I/O."""

from __future__ import annotations

import io
import struct
import wave
from dataclasses import dataclass

__all__ = ["Audio", "audio_header"]

_MOST_HEADER = 1 << 18  # bytes before the samples: remarks, or what aligns them to pages


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording's format, length and sampling."""

    format: str
    seconds: float
    rate: int
    channels: int


def audio_header(data: bytes) -> Audio | None:
    """WAV or FLAC; None for anything else, and for a header that is cut.

    >>> audio_header(b"RIFF") is None
    True
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wav(data)
    return _flac(data) if data[:4] == b"fLaC" else None


def _wav(data: bytes) -> Audio | None:
    try:
        with wave.open(io.BytesIO(data[:_MOST_HEADER])) as file:
            rate = file.getframerate()
            return Audio("wav", file.getnframes() / rate, rate, file.getnchannels()) if rate else None
    except (wave.Error, EOFError, struct.error):
        return None


def _flac(data: bytes) -> Audio | None:
    """STREAMINFO is the first block: after 4 + 4 + 10 bytes come 20 bits rate, 3 channels, 5 depth, 36 samples."""
    if len(data) < 26 or data[4] & 0x7F:
        return None
    bits = int.from_bytes(data[18:26], "big")
    rate, channels, samples = bits >> 44, (bits >> 41 & 7) + 1, bits & 0xFFFFFFFFF
    return Audio("flac", samples / rate, rate, channels) if rate else None
