"""Structs of the Arrow C data interface, made by hand."""

from __future__ import annotations

import ctypes

POINTER = ctypes.c_void_p
RELEASE = ctypes.CFUNCTYPE(None, POINTER)


class Schema(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", POINTER),
        ("dictionary", POINTER),
        ("release", RELEASE),
        ("private_data", POINTER),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset")),
        *((name, ctypes.c_int64) for name in ("n_buffers", "n_children")),
        ("buffers", POINTER),
        ("children", POINTER),
        ("dictionary", POINTER),
        ("release", RELEASE),
        ("private_data", POINTER),
    ]


@RELEASE
def keep(_struct):
    """Nothing is owned: Python's objects outlive the call."""


def capsule(struct, name: bytes):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
    return make(ctypes.addressof(struct), name, None)


class Producer:
    def __init__(self, code: bytes, children: int = 0) -> None:
        self.data = ctypes.create_string_buffer(64)
        self.buffers = (POINTER * 3)(None, *(2 * [ctypes.addressof(self.data)]))
        self.schema = Schema(format=code, n_children=children, release=keep)
        self.array = Array(
            length=1,
            n_buffers=3,
            n_children=children,
            buffers=ctypes.addressof(self.buffers),
            release=keep,
        )

    def __arrow_c_array__(self, requested_schema=None):
        schema = capsule(self.schema, b"arrow_schema")
        return schema, capsule(self.array, b"arrow_array")
