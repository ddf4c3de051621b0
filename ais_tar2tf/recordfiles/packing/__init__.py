"""Pack folders, CSV files and records into tar shards.

A packed record passes through these modules:

1. sources   `sources` inspects the source; for a folder, it calls `folder_source`, for a CSV file `csv_source`.
2. records   `sources` returns `Contents`: for each split, the number of its records and a function that reads them.
3. plan      `plan` decides the names of the shards and the order of the records, without a request to a store.
4. shards    `packer` reads the records, `shard_files` writes them as tar shards, uploads each and reads it back.
5. result    `PackResult` lists the URLs of the shards and counts what was packed and what was left out.
"""

from __future__ import annotations

from ais_tar2tf.recordfiles.packing.contents import Contents
from ais_tar2tf.recordfiles.packing.options import PackOptions
from ais_tar2tf.recordfiles.packing.sources import Rows, inspect_source

__all__ = ["Contents", "PackOptions", "Rows", "inspect_source"]
