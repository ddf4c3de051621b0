"""Export folders of images and a CSV of labels to record files, and load batches, with Datum's functions.

python examples/datum_style.py
python examples/datum_style.py --input flowers/ --output records/   # with train/, train.csv, val/ and val.csv
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

from ais_tar2tf import datum


def export(folder: Path, records: Path) -> None:
    """Export two splits. Datum finds types, shapes and sparse values in the data."""
    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {"train": {}, "val": {}}
    datum.export.export_to_tfrecord(folder, records, datum.problem.IMAGE_CLF, write_configs)


def load(records: Path) -> None:
    """Load batches. The batches for training are shuffled and resized."""
    dataset = datum.load(records)
    configs = dataset.dataset_configs
    configs.batch_size_train = 16
    configs.batch_size_val = 16
    configs.pre_batching_callback = smaller
    train = dataset.train_fn("train[:75%]", shuffle=True)
    batch = next(iter(train))
    print(f"a batch of training: image {batch['image'].shape}, label {batch['label'].dtype.name}")
    val = dataset.val_fn("val", shuffle=False)
    labels = [int(label) for batch in val for label in batch["label"]]
    print(f"val has {len(labels)} images, the first labels are {labels[:5]}")


def smaller(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {**example, "image": tf.image.resize(example["image"], (16, 16)) / 255}


def generate(folder: Path) -> Path:
    """Write images of three colours. The colour is the label."""
    colours = np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]], np.uint8)
    for split, count in (("train", 64), ("val", 20)):
        (folder / split).mkdir(parents=True)
        lines = ["filename,label"]
        for number in range(count):
            image = np.broadcast_to(colours[number % 3], (24, 32, 3))
            tf.io.write_file(str(folder / split / f"{number:04d}.jpg"), tf.io.encode_jpeg(image))
            lines.append(f"{number:04d},{number % 3}")
        (folder / f"{split}.csv").write_text("\n".join(lines), encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--input", type=Path, help="a folder in that layout (default: generate one)")
    parser.add_argument("--output", type=Path, default=Path("records"), help="the record files (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.input or generate(Path(temporary, "flowers"))
        records = options.output if options.input else Path(temporary, "records")
        export(folder, records)
        print(f"wrote {', '.join(sorted(path.name for path in records.iterdir()))}")
        load(records)


if __name__ == "__main__":
    main()
