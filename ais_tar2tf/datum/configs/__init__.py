"""The settings of `export_to_tfrecord` and `load`: attributes that check their values. Unknown names are errors."""

from __future__ import annotations

from ais_tar2tf.datum.configs.config_base import ConfigBase, Setting
from ais_tar2tf.datum.configs.tfr_configs import BucketConfigs, DatasetConfigs, TFRReadConfigs, TFRWriteConfigs

__all__ = ["BucketConfigs", "ConfigBase", "DatasetConfigs", "Setting", "TFRReadConfigs", "TFRWriteConfigs"]


def __dir__() -> list[str]:
    return sorted(__all__)
