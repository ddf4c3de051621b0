"""Exports: records are written to record files, which are published completely or not at all.

An interrupted export continues when it is run again.

The bytes of a record pass through these modules:

1. `request` checks the options of `export` and describes the export: a `target` and an `ExportJob`.
2. `shard_output` reads input shards and encodes their records (`serializers`, `routing`), in this process or in the
   worker processes of `pool` and `worker`. It also collects `split_statistics`, from which the schema is made.
3. `writers` fills files up to their `boundaries`; `journal` records each finished file in the work folder.
4. `publish` gives the files their final names at a destination (`destinations`, `locking`), and then writes the
   `manifest`. Before this, `occupied` checks which files exist there already, and `sources` checks whether the input
   has changed.

`run` composes these steps. `staging` and `finishing` let the hosts of a job array export together. `named_files` and
`payloads` are for callers that choose the names of the files.

The output folder or URL `OUT` holds these files; `SPLITS` are the names of all splits, joined by `+`:

| path | content | deleted when |
|---|---|---|
| `NAME-SPLIT.tfrecord-00000-of-00007`, `….idx` | a published record file, and DALI's index of it | |
| `features.json`, `dataset_info.json`, `FEATURE.labels.txt` | documents for TFDS (`metadata`) | |
| `manifest.json` | all published files; written last | |
| `.export-SPLITS/` | the work folder of one export; for a URL, in the user's cache folder | everything is published |
| `…/lock` | locked while a process writes here | |
| `…/journal` | the finished files and shards; see `journal` | |
| `…/SPLIT-00000.part` | a record file, being written or finished | |
| `…/segments-XXXXXXXX/` | encoded records from worker processes, on their way into the record files | |
| `.parts-SPLITS/` | the staging folder of a job array, or of a Beam pipeline | everything is published |
| `…/.work-00003-of-00016/` | the work folder of one host, with the same content | its files are staged |
| `…/00003-of-00016.PLAN.train-00000.part`, `….part.idx` | a finished record file of one host, and its index | |
| `…/00003-of-00016.PLAN.json` | the description of that host's files; written last | |
| `…/finished` | an empty file: everything is published, and the staging folder is being deleted | |
| `.publishing/` | claims of processes that are publishing; only in stores, because they have no locks | |

`PLAN` is a hash of the export's options and sources. No file here depends on when, where or by how many workers it
was written.
"""

from __future__ import annotations

from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE
from ais_tar2tf.recordfiles.export.named_files import Paths, write_files, write_payloads

__all__ = ["DEFAULT_SIZE", "Paths", "write_files", "write_payloads"]
