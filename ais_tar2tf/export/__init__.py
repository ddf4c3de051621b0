"""Record files: sharded, resumable, published whole or not at all, verified by anybody.

framing, tarfiles, formats   what stands in a file         parts, work    files being written, and what a rerun knows
boundaries                   where files end               publish        final names, the manifest last
serializers, splits          records → bytes, and where    verify         every checksum and count
shard_units, pool, worker    input shards → bytes, by one process or several
"""

from __future__ import annotations

from ais_tar2tf.export.boundaries import DEFAULT_SIZE
from ais_tar2tf.export.files import Paths, write_files, write_payloads, write_tfrecord
from ais_tar2tf.export.framing import frame

__all__ = ["DEFAULT_SIZE", "Paths", "frame", "write_files", "write_payloads", "write_tfrecord"]
