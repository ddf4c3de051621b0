"""Exports: records are written to record files, which are published completely or not at all.

An interrupted export continues when it is run again.

The bytes of a record pass through these modules:

1. `request` checks the options of `export`. It describes the output as an `ExportTarget` (`target`), and the input as
   an `ExportJob` (`shard_output`).
2. `shard_output` reads input shards and encodes their records (`serializers`, `routing`), in this process or in the
   worker processes of `pool` and `worker`. It also collects `split_statistics`, from which `run` makes the schema.
3. `writers` fills files up to their `boundaries`; `journal` records each finished file in the work folder.
4. `publish` gives the files their final names at a destination (`destinations`, `locking`), and then writes the
   `manifest`. Before step 2, `occupied` checks which files exist at the destination already, and `sources` checks
   whether the input has changed since an earlier run.

`run` composes these steps. `staging` and `finishing` let the hosts of a job array export together: each host exports
its share of the input shards. `named_files` and `payloads` are for callers that choose the names of the files.

The table lists the files in the output folder or URL. `SPLITS` are the names of all splits, joined by `+`. `…/`
stands for the nearest folder above that is written without `…`. If the third column is empty, the file stays, or is
deleted with its folder.

| path | content | deleted when |
|---|---|---|
| `NAME-SPLIT.tfrecord-00000-of-00007` | a published record file; its name with `.idx` is DALI's index of it | |
| `features.json`, `dataset_info.json`, `FEATURE.labels.txt` | documents for TFDS (`metadata`) | |
| `manifest.json` | all published files; written last | |
| `.export-SPLITS/` | the work folder of one export; for a URL, in the user's cache folder | everything is published |
| `…/lock` | a file that a process locks while it writes in this folder | |
| `…/journal` | the finished files and shards; see `journal` | |
| `…/SPLIT-00000.part` | a record file, being written or finished | |
| `…/segments-XXXXXXXX/` | encoded records from worker processes, which become parts of the record files | |
| `.parts-SPLITS/` | the staging folder of a job array, or of a Beam pipeline | everything is published |
| `…/.work-00003-of-00016/` | one host's work folder; same files as `.export-SPLITS/` | its record files are staged |
| `…/00003-of-00016.PLAN.train-00000.part` | a finished record file of one host; with `.idx`, its index | |
| `…/00003-of-00016.PLAN.json` | the description of the host's record files; written after them | |
| `…/finished` | an empty file: everything is published, and the staging folder is being deleted | |
| `.publishing/` | claims of processes that are publishing; only in stores, because stores have no locks | |

`PLAN` is a hash of the export's options and sources. The content of a published file does not depend on the time, the
machine or the number of workers.
"""

from __future__ import annotations

from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE
from ais_tar2tf.recordfiles.export.named_files import Paths, write_files, write_payloads

__all__ = ["DEFAULT_SIZE", "Paths", "write_files", "write_payloads"]
