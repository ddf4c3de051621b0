"""A network of this process's own, in which there is only loopback: what listens there is reached by nobody else."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

_NEW_USER = 0x10000000  # CLONE_NEWUSER
_NEW_NET = 0x40000000  # CLONE_NEWNET
_GET_FLAGS = 0x8913  # SIOCGIFFLAGS
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS
_UP = 0x1


def is_private() -> bool:
    """Whether loopback is all the network that there is."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def enter() -> None:
    """Move this process, which must have one thread, into a network of its own. OSError where that is not allowed.

    Root needs no user namespace, but in a container may have to use one. Others stay who they are: the rights that
    a user namespace gives are lost with the next exec.
    """
    if is_private():
        return
    user, group = os.getuid(), os.getgid()
    if not (user == 0 and _succeeds(_NEW_NET)):
        _unshare(_NEW_USER | _NEW_NET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _raise_loopback()


def _succeeds(flags: int) -> bool:
    try:
        _unshare(flags)
    except PermissionError:
        return False
    return True


def _unshare(flags: int) -> None:
    """os.unshare came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("this system has no network namespaces")
    if libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags: int = struct.unpack("16sH14x", fcntl.ioctl(sock, _GET_FLAGS, asked))[1]
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
