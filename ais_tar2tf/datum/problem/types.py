"""The values of `problem_type`."""

from __future__ import annotations

__all__ = ["IMAGE_CLF", "IMAGE_DET", "IMAGE_SEG", "TEXT_CLF"]

IMAGE_CLF = "image_clf"
IMAGE_DET = "image_det"
IMAGE_SEG = "image_seg"
TEXT_CLF = "text_clf"
