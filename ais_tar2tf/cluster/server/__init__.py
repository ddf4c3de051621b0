"""The embedded server: AIStore's object API over a directory, for trying things out and for tests.

The sub-folders of the directory are the buckets, and the files in them are the objects. Reading from a real cluster
must not need this package.

>>> import pathlib, tempfile, requests
>>> with tempfile.TemporaryDirectory() as folder, serve(folder) as server:
...     _ = requests.post(f"{server.url}/v1/buckets/mnist", json={"action": "create-bck"}, timeout=5)
...     _ = pathlib.Path(folder, "mnist", "train-0.tar").write_bytes(b"tar")
...     requests.get(f"{server.url}/v1/objects/mnist/train-0.tar", timeout=5).content
b'tar'

A request passes through `connections` (limits), `nodes` (checks that proxy and target share) and `calls` (parsing).
The `proxy` answers for buckets and redirects requests for objects to the `target`, as in a real cluster.
"""

from __future__ import annotations

from ais_tar2tf.cluster.server.serving import serve

__all__ = ["serve"]
