"""Move this process into a network namespace that has only loopback, so that no other machine reaches its servers."""

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
    """Return whether loopback is the only network interface."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def enter() -> None:
    """Move this process, which must have only one thread, into a network namespace of its own.

    Root may not need a user namespace, but in some containers it does. All other users get one, in which they keep
    their user id; the rights that a user namespace grants are lost with the next exec.

    Raises:
        OSError: The system does not allow it.
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
    """Call unshare(2). `os.unshare` exists only since Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("this system has no network namespaces")
    if libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags: int = struct.unpack("16sH14x", fcntl.ioctl(sock, _GET_FLAGS, request))[1]
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
