"""JobObject objects: on Windows, the processes that a child has started, and theirs, ended together.

A job ends with its last handle, and this process has the only one. So what a client has started ends with the client, however
that ends. https://learn.microsoft.com/windows/win32/procthread/job-objects
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes
from typing import Final

assert sys.platform == "win32"

CREATE_SUSPENDED: Final = 0x4
"""A flag for a process that belongs to a job before its first instruction, and so before it has started another one."""

_KILL_ON_JOB_CLOSE: Final = 0x2000
_PROCESS_MEMORY: Final = 0x100
_EXTENDED_LIMITS: Final = 9
_TERMINATE_SET_QUOTA_SUSPEND: Final = 0x1 | 0x100 | 0x800
_ENDED_BY_JOB: Final = 1


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


def _functions() -> tuple[ctypes.WinDLL, ctypes.WinDLL]:
    """Return the system's functions; handles are pointers, which ctypes would cut to 32 bits."""
    kernel, native = ctypes.WinDLL("kernel32", use_last_error=True), ctypes.WinDLL("ntdll")
    kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = wintypes.HANDLE
    kernel.CreateJobObjectW.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    kernel.SetInformationJobObject.argtypes = (wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD)
    kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    kernel.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
    kernel.CloseHandle.argtypes = native.NtResumeProcess.argtypes = (wintypes.HANDLE,)
    return kernel, native


class JobObject:
    """A suspended process that begins now, and whatever it will start."""

    def __init__(self, pid: int, memory: int | None = None) -> None:
        """Let the process begin; each of the job gets `memory` bytes at most. Raises: OSError; it stays suspended then."""
        self._kernel, native = _functions()
        self._handle = self._checked(self._kernel.CreateJobObjectW(None, None))
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
        if memory is not None:
            limits.BasicLimitInformation.LimitFlags |= _PROCESS_MEMORY
            limits.ProcessMemoryLimit = memory
        size = ctypes.sizeof(limits)
        self._checked(self._kernel.SetInformationJobObject(self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), size))
        process = self._checked(self._kernel.OpenProcess(_TERMINATE_SET_QUOTA_SUSPEND, False, pid))
        try:
            self._checked(self._kernel.AssignProcessToJobObject(self._handle, process))
            native.NtResumeProcess(process)
        finally:
            self._kernel.CloseHandle(process)

    def end(self) -> None:
        """End all of its processes at once. A second time does nothing."""
        handle, self._handle = self._handle, 0
        if handle:
            self._kernel.TerminateJobObject(handle, _ENDED_BY_JOB)
            self._kernel.CloseHandle(handle)

    def __del__(self) -> None:
        """End them with the last reference."""
        if getattr(self, "_handle", 0):
            self.end()

    def _checked(self, returned: int) -> int:
        if not returned:
            raise ctypes.WinError(ctypes.get_last_error())
        return returned
