"""A card of a dataset: what its records are like, as one HTML file that needs no network and runs no script.

`Survey` takes records one after the other, in constant memory; `render` makes the page of what it saw.
"""

from __future__ import annotations

from ais_tar2tf.card._arrays import png
from ais_tar2tf.card._render import document, loader, loader_of, render
from ais_tar2tf.card._survey import Bad, Survey

__all__ = ["Bad", "Survey", "document", "loader", "loader_of", "png", "render"]
