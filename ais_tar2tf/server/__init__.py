"""The embedded server: AIStore's object API over a directory; it must not be needed to read from a real cluster.

The sub-folders of the directory are the buckets, the files in them are the objects.

>>> import pathlib, tempfile, requests
>>> with tempfile.TemporaryDirectory() as folder, serve(folder) as server:
...     _ = requests.post(f"{server.url}/v1/buckets/mnist", json={"action": "create-bck"}, timeout=5)
...     _ = pathlib.Path(folder, "mnist", "train-0.tar").write_bytes(b"tar")
...     requests.get(f"{server.url}/v1/objects/mnist/train-0.tar", timeout=5).content
b'tar'
"""

from __future__ import annotations

from ais_tar2tf.server.calls import Seen
from ais_tar2tf.server.lifecycle import Server, serve

__all__ = ["Seen", "Server", "serve"]
