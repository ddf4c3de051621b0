"""The formats of record files: one module for each, and the registry through which all other code finds them.

To add a format, write a module in this folder that defines `FORMAT`, an instance of a subclass of `RecordFormat`, and
add the name of the module to `FORMATS` in `registry.py`. No other file changes. No module outside of this folder may
compare the name of a format: the class attributes of `RecordFormat` state what a format can do.
"""

from __future__ import annotations

from ais_tar2tf.recordfiles.formats.registry import FORMATS, all_formats, find_format

__all__ = ["FORMATS", "all_formats", "find_format"]
