"""Reading of netCDF-4 and HDF5 files.

A helper process reads the file, because a damaged file can make the HDF5 library crash or hang. A helper that crashes
or hangs does not harm this process.
"""

from __future__ import annotations

from ais_tar2tf.values.hdf5.reading import read, read_in_process

__all__ = ["read", "read_in_process"]
