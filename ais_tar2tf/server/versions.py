"""Which version of its name an object is; it must not read files: it is told what they hold.

AIStore counts 1, 2, 3 … as an object is overwritten. A file that somebody else changed counts as overwritten too.
"""

from __future__ import annotations

from collections import OrderedDict

from ais_tar2tf.server.checksums import Content

__all__ = ["Versions"]

ENTRIES = 1_000_000  # names remembered, some 300 bytes each; a forgotten name begins again at 1


class Versions:
    """A bounded map from names to the content last seen there and its number."""

    def __init__(self, *, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._last: OrderedDict[tuple[str, str], tuple[Content, int]] = OrderedDict()

    def peek(self, bucket: str, name: str, content: Content) -> int:
        """Say what `seen` would, without remembering it: for listings, which pass by every name."""
        last, version = self._last.get((bucket, name), (content, 1))
        return version if last == content else version + 1

    def seen(self, bucket: str, name: str, content: Content) -> int:
        version = self.peek(bucket, name, content)
        self._remember((bucket, name), content, version)
        return version

    def replaced(self, bucket: str, name: str, before: Content | None, content: Content) -> int:
        """Count an overwrite: of what is remembered here, and of a file that nobody asked for yet."""
        version = 1 if before is None else self.peek(bucket, name, before) + 1
        self._remember((bucket, name), content, version)
        return version

    def _remember(self, key: tuple[str, str], content: Content, version: int) -> None:
        self._last[key] = content, version
        self._last.move_to_end(key)
        if len(self._last) > self._entries:
            self._last.popitem(last=False)

    def forget(self, bucket: str, name: str) -> None:
        self._last.pop((bucket, name), None)

    def forget_bucket(self, bucket: str) -> None:
        for key in [key for key in self._last if key[0] == bucket]:
            del self._last[key]
