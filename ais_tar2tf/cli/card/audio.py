"""The headers of WAV and FLAC files. This module must not decode sound or do I/O."""

from __future__ import annotations

import io
import struct
import wave
from dataclasses import dataclass

__all__ = ["Audio", "audio_header"]

_MOST_HEADER = 1 << 18  # bytes before the samples, such as tags and padding


@dataclass(frozen=True, slots=True)
class Audio:
    """The format, length, sampling rate and number of channels of a recording."""

    format: str
    seconds: float
    rate: int
    channels: int


def audio_header(data: bytes) -> Audio | None:
    """Return the header of a PCM WAV or a FLAC file; None for anything else, and for a truncated header.

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
    """Read the first block of a FLAC file, STREAMINFO.

    Byte 18 begins 64 bits: 20 for the rate, 3 for the channels, 5 for the depth, and 36 for the number of samples.
    """
    if len(data) < 26 or data[4] & 0x7F:
        return None
    bits = int.from_bytes(data[18:26], "big")
    rate, channels, samples = bits >> 44, (bits >> 41 & 7) + 1, bits & 0xFFFFFFFFF
    return Audio("flac", samples / rate, rate, channels) if rate else None
