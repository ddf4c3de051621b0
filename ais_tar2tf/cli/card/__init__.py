"""A card of a data set: one HTML page that shows what its records are like, needs no network and runs no script.

The path from shards to the page: `cli/scan.py` reads the shards and adds every record to a `DataStatistics`. For each
field, that keeps a `FieldStatistics`, which recognizes images, audio, arrays, JSON, text and numbers, and counts what
it finds in `NumberStatistics` (range, mean, histogram) and `WordCounts` (frequencies). `samples.py` draws a
few records at random and reduces them to what a page can show. `render` makes the page with the plots of `plots.py`,
the style sheet of `style.py` and the code of `loading_code.py`. Memory is bounded by `options.Card`, however many
records there are. Nothing in this package does I/O.
"""

from __future__ import annotations

from ais_tar2tf.cli.card.arrays import png
from ais_tar2tf.cli.card.loading_code import loader_of
from ais_tar2tf.cli.card.page import document, render
from ais_tar2tf.cli.card.statistics import DataStatistics

__all__ = ["DataStatistics", "document", "loader_of", "png", "render"]
