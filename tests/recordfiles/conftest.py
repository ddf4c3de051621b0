"""Fixtures for the tests of record files."""

from __future__ import annotations

import pytest

import ais_tar2tf as t2t


@pytest.fixture
def imagenet_dataset(imagenet: t2t.serve) -> t2t.AisDataset:
    """The bucket of images and labels on the embedded server."""
    return t2t.AisDataset("imagenet", imagenet.url)
