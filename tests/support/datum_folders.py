"""Build input folders for each of datum's four problem types, with images encoded by Pillow."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ais_tar2tf import datum

CLASSES = ("aeroplane", "bicycle", "bird")


def pixels(seed: int, height: int = 12, width: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(array: np.ndarray, kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    return buffer.getvalue()


def palette_mask(ids: np.ndarray, bits: int = 8) -> bytes:
    """Return a PNG whose pixels are indices into a palette of colours, like the masks of Pascal VOC."""
    image = Image.frombytes("P", (ids.shape[1], ids.shape[0]), ids.astype(np.uint8).tobytes())
    image.putpalette([value for n in range(256) for value in (n * 37 % 256, n * 91 % 256, n * 53 % 256)])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", bits=bits)
    return buffer.getvalue()


def configs(**counts: int | None) -> datum.configs.TFRWriteConfigs:
    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {
        split: {} if count is None else {"num_examples": count} for split, count in counts.items()
    }
    return write_configs


def classification(folder: Path, *, extension: str = ".jpg", **counts: int) -> Path:
    """Write `counts[split]` labelled images for each split, and return `folder`."""
    for at, (split, count) in enumerate(counts.items()):
        (folder / split).mkdir(parents=True)
        lines = ["filename,label,name,score"]
        for number in range(count):
            kind = "PNG" if extension == ".png" else "JPEG"
            picture = encoded(pixels(at * 1000 + number), kind)
            (folder / split / f"im{number}{extension}").write_bytes(picture)
            lines.append(f"im{number},{number % 3},kind {number % 3},{number / 4}")
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


def annotation(objects: list[dict[str, Any]], width: int = 16, height: int = 12) -> str:
    """Return the Pascal VOC annotation of an image as XML."""
    body = "".join(
        f"<object><name>{each['name']}</name><pose>{each.get('pose', 'Left')}</pose>"
        f"<truncated>{each.get('truncated', 0)}</truncated><difficult>{each.get('difficult', 0)}</difficult>"
        f"<bndbox><xmin>{each['box'][0]}</xmin><ymin>{each['box'][1]}</ymin>"
        f"<xmax>{each['box'][2]}</xmax><ymax>{each['box'][3]}</ymax></bndbox></object>"
        for each in objects
    )
    return f"<annotation><size><width>{width}</width><height>{height}</height></size>{body}</annotation>"


def boxes(number: int, most: int = 4) -> list[dict[str, Any]]:
    """Return `number % (most + 1)` objects, so that the first image has none."""
    return [
        {
            "name": CLASSES[(number + at) % 3],
            "box": (at % 8, at % 6, at % 8 + 4, at % 6 + 3),
            "truncated": at % 2,
            "pose": "Rear",
        }
        for at in range(number % (most + 1))
    ]


def detection(folder: Path, *, most: int = 4, **counts: int) -> Path:
    """Write `counts[split]` images with up to `most` bounding boxes for each split, and return `folder`."""
    for name in ("JPEGImages", "Annotations", "ImageSets"):
        (folder / name).mkdir(parents=True)
    (folder / "classes.names").write_text("\n".join(CLASSES) + "\n")
    for split, count in counts.items():
        names = [f"{split}_{number:06d}" for number in range(count)]
        for number, name in enumerate(names):
            (folder / "JPEGImages" / f"{name}.jpg").write_bytes(encoded(pixels(number)))
            (folder / "Annotations" / f"{name}.xml").write_text(annotation(boxes(number, most)))
        (folder / "ImageSets" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def mask_ids(number: int) -> np.ndarray:
    return (np.arange(12 * 16).reshape(12, 16) + number) % 4


def segmentation(folder: Path, **counts: int) -> Path:
    """Write `counts[split]` images with masks for each split, and return `folder`."""
    for name in ("JPEGImages", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    for split, count in counts.items():
        for number in range(count):
            (folder / "JPEGImages" / f"{split}{number}.jpg").write_bytes(encoded(pixels(number)))
            (folder / "SegmentationClass" / f"{split}{number}.png").write_bytes(palette_mask(mask_ids(number)))
        (folder / f"{split}.txt").write_text("".join(f"{split}{number}\n" for number in range(count)))
    return folder


def text(folder: Path, **counts: int) -> Path:
    """Write `counts[split]` texts with two labels each for each split, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in counts.items():
        entries = {
            str(number): {
                "text": f"text {number} ü",
                "label": {"polarity": str(number % 2), "topic": f"t{number % 3}"},
            }
            for number in range(count)
        }
        (folder / f"{split}.json").write_text(json.dumps(entries))
    return folder
