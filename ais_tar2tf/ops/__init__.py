"""Ops: conversions of records, and selections of values from them, described as data.

    AisDataset(
        "bucket",
        conversions=[Rename(image="jpg;png"), Decode("image"), Resize("image", (64, 64)), Convert("cls", "int32")],
        selections=["image", "cls"],
    )

A conversion returns a new record, a selection returns a value of a record. Every op works on plain records, whose
values are of Python or NumPy, and on records of tensors in a graph, with the same result. All ops except `Func` can
be written as JSON and read back.
"""

from __future__ import annotations

from ais_tar2tf.ops.conversions import Convert, Decode, Func, Rename, Resize, Rotate
from ais_tar2tf.ops.pipeline import Pipeline, from_json, to_json
from ais_tar2tf.ops.selections import Select, SelectDict, SelectJSON, SelectList

__all__ = [
    "Convert",
    "Decode",
    "Func",
    "Pipeline",
    "Rename",
    "Resize",
    "Rotate",
    "Select",
    "SelectDict",
    "SelectJSON",
    "SelectList",
    "from_json",
    "to_json",
]


def __dir__() -> list[str]:
    return sorted(__all__)
