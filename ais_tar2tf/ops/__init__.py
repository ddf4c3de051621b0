"""What is done to records and what is taken of them, said as data: each op works on plain records and in a graph.

    AisDataset(
        "bucket",
        conversions=[Rename(image="jpg;png"), Decode("image"), Resize("image", (64, 64)), Convert("cls", "int32")],
        selections=["image", "cls"],
    )

A conversion gives a new record, a selection a value of it. All but `Func` can be written as JSON and read back.
Values of plain records are bytes, Python's or numpy's; what TensorFlow computes is the same in both.
"""

from __future__ import annotations

from ais_tar2tf.ops._conversions import Convert, Decode, Func, Rename, Resize, Rotate
from ais_tar2tf.ops._pipeline import Pipeline, from_json, to_json
from ais_tar2tf.ops._selections import Select, SelectDict, SelectJSON, SelectList

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
