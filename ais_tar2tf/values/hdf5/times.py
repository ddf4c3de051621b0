"""Converts numbers with units such as `days since 2000-01-01` to datetime64, as the CF conventions define them.

This module must not do I/O.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

__all__ = ["TimeUnits"]

_CALENDARS = frozenset({"standard", "gregorian", "proleptic_gregorian"})
_NANOSECONDS = {
    "day": 86_400 * 10**9,
    "hour": 3_600 * 10**9,
    "minute": 60 * 10**9,
    "second": 10**9,
    "millisecond": 10**6,
    "microsecond": 10**3,
    "nanosecond": 1,
}
_UNITS = re.compile(
    rf"({'|'.join(_NANOSECONDS)})s? since\s+"
    r"(-?[0-9]{1,5})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?"  # the date
    r"(?:[T ]\s*([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9})[0-9]*)?)?)?)?"  # the time
    r"\s*(?:UTC|GMT|Z|([+-])([0-9]{1,2}):?([0-9]{2})?)?\s*"  # the time zone
)
_GREGORIAN = (1582, 10, 15)  # the standard calendar is Julian before this date
_EPOCH = 2_440_588  # the Julian day number of 1970-01-01
_RANGE = 2.0**63  # nanoseconds before and after 1970-01-01; the years 1678 to 2261 lie within it


class TimeUnits(NamedTuple):
    """The units of times.

    Attributes:
        unit: The nanoseconds in a unit.
        start: The nanoseconds from 1970-01-01 to the time from which the units are counted.
    """

    unit: int
    start: int

    @classmethod
    def parse(cls, units: Any, calendar: Any) -> TimeUnits | None:
        """Parse the attributes of a variable; return None if it holds no times, or has another calendar.

        Raises:
            ValueError: There is no such date or time.
        """
        found = _UNITS.fullmatch(units.strip()) if isinstance(units, str) else None
        if found is None or calendar not in _CALENDARS:
            return None
        unit, *date, hour, minute, second, fraction, sign, zone_hours, zone_minutes = found.groups()
        year, month, day = (int(part or 1) for part in date)
        of_day = np.datetime64(f"1970-01-01T{hour or 0:0>2}:{minute or 0:0>2}:{second or 0:0>2}", "s").astype(int)
        zone = (int(zone_hours or 0) * 60 + int(zone_minutes or 0)) * (-60 if sign == "-" else 60)
        julian = calendar != "proleptic_gregorian" and (year, month, day) < _GREGORIAN
        seconds = (_julian_days if julian else _gregorian_days)(year, month, day) * 86_400 + int(of_day) - zone
        return cls(_NANOSECONDS[unit], seconds * 10**9 + int(f"{fraction or 0:0<9}"))

    def convert(self, values: Any, is_missing: Any) -> Any:
        """Return numbers as datetime64. Missing values, NaN and times beyond the range of nanoseconds become NaT."""
        gaps = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        if is_missing is not None:
            gaps = gaps | is_missing
        numbers = np.where(gaps, 0, values)
        with np.errstate(over="ignore"):
            gaps = gaps | (np.abs(numbers.astype("f8") * self.unit + self.start) >= _RANGE)
        numbers = np.where(gaps, 0, numbers).astype("f8" if values.dtype.kind == "f" else "i8")
        # Count from 1970 if a number or the start is beyond the range, and only their sum is within it.
        is_far = abs(self.start) >= _RANGE or bool((np.abs(numbers.astype("f8")) * self.unit >= _RANGE).any())
        moved, start = divmod(self.start, self.unit) if is_far else (0, self.start)
        steps = np.round(np.where(gaps, 0, numbers + moved) * self.unit).astype("i8")
        return np.where(gaps, np.datetime64("NaT"), (steps + start).astype("M8[ns]"))


def _gregorian_days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date of the Gregorian calendar, also before its introduction."""
    text = f"{'-' * (year < 0)}{abs(year):04}-{month:02}-{day:02}"
    return int(np.datetime64(text, "D").astype(int))


def _julian_days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date of the Julian calendar."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"there is no date {year}-{month}-{day}")
    before_march = (14 - month) // 12
    from_march, years = month + 12 * before_march - 3, year + 4_800 - before_march
    return day + (153 * from_march + 2) // 5 + 365 * years + years // 4 - 32_083 - _EPOCH
