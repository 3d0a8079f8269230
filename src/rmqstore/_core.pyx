"""The core of rmqstore: one extension, assembled from the parts in ``_native/``.

The parts stand in reading order, and each may use those above it.  The first half is C:
``noexcept nogil`` functions over structs, a status in the return value, no Python object.  The
second half is what Python sees: thin classes that check arguments, release the GIL, make one
call, and turn its status into an exception.

The lock order stands at the head of ``store_state.pxi``.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_AsTuple, PyList_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.sequence cimport PySequence_Check
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.errno cimport (
    EACCES, EAGAIN, EBADF, EDQUOT, EEXIST, EFAULT, EINVAL, EIO, ELOOP, EMFILE, ENFILE, ENOENT,
    ENOMEM, ENOSPC, ENOTDIR, ENOTEMPTY, ENXIO, EOPNOTSUPP, EPERM, EXDEV, errno,
)
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t, int16_t,
)
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport (
    memchr, memcmp, memcpy, memmove, memset, strchr, strcmp, strlen, strncmp, strrchr,
)
from rmqstore._native.arrow_c cimport *
from rmqstore._native.catomic cimport *
from rmqstore._native.cbytes cimport *
from rmqstore._native.column_view cimport *
from rmqstore._native.cposix cimport *
from rmqstore._native.crc32 cimport (
    crc32_clmul, crc32_has_clmul, crc32_has_wide, crc32_portable, crc32_update, crc32_wide,
)
from rmqstore._native.cstatus cimport *
from rmqstore._native.faults cimport (
    FAULTS_BUILT, FAULTS_FAILED, FAULTS_PASSED, KILL_POINT, PLANTED, PLANTS_BUILT,
)
from rmqstore._native.java_string cimport (
    JAVA_REPLACEMENT, continues_utf8, java_abs_hash, java_decode_utf8, java_hash_code,
    java_hash_utf8, utf8_error,
)
from rmqstore._native.layout cimport *
from rmqstore._native.mapping_guard cimport (
    Guard, guard_enter, guard_install, guard_leave, guard_lost,
)
from rmqstore._native.system cimport *

import atexit
from codecs import register_error
from collections.abc import Mapping
from os import fsdecode, fsencode, makedirs, path as os_path, strerror
from re import compile as compile_pattern

from rmqstore import arrays, bodies, errors, times, types


cdef struct Queue
cdef struct Topic
cdef struct FileSet
cdef struct OpenFiles
cdef struct Store
cdef struct Pending

# ---- files
include "_native/mapped_file.pxi"
include "_native/file_set.pxi"
include "_native/file_list.pxi"
# ---- formats
include "_native/properties.pxi"
include "_native/record_parse.pxi"
include "_native/record_encode.pxi"
include "_native/unique_key.pxi"
include "_native/host_text.pxi"
# ---- queues and index
include "_native/consume_queue.pxi"
include "_native/topic_table.pxi"
include "_native/index_file.pxi"
include "_native/index_sizes.pxi"
include "_native/index_set.pxi"
include "_native/index_list.pxi"
# ---- the store and its four activities
include "_native/worker.pxi"
include "_native/wakeups.pxi"
include "_native/store_state.pxi"
include "_native/commit_log.pxi"
include "_native/prepare.pxi"
include "_native/flush.pxi"
include "_native/dispatch.pxi"
include "_native/checkpoint.pxi"
include "_native/topic_deletion.pxi"
# ---- reading
include "_native/unreadable.pxi"
include "_native/read_path.pxi"
include "_native/reading_look.pxi"
include "_native/read_ahead.pxi"
include "_native/log_cursor.pxi"
include "_native/get_messages.pxi"
include "_native/index_sound.pxi"
include "_native/index_coverage.pxi"
include "_native/query.pxi"
include "_native/queue_lives.pxi"
include "_native/derive.pxi"
include "_native/verify.pxi"
include "_native/log_units.pxi"
include "_native/index_share.pxi"
include "_native/index_check.pxi"
# ---- columns out
include "_native/column_output.pxi"
include "_native/scan_columns.pxi"
include "_native/scan_filter.pxi"
include "_native/scan_source.pxi"
include "_native/queued_log.pxi"
include "_native/queued_gaps.pxi"
include "_native/scan_plan.pxi"
include "_native/scan_times.pxi"
include "_native/scan.pxi"
# ---- opening and closing
include "_native/quarantine.pxi"
include "_native/recover_scan.pxi"
include "_native/recover_log.pxi"
include "_native/recover_units.pxi"
include "_native/recover_queues.pxi"
include "_native/index_rebuild.pxi"
include "_native/recover_index.pxi"
include "_native/recover.pxi"
include "_native/store_open.pxi"
# ---- what Python sees
include "_native/errors.pxi"
include "_native/message.pxi"
include "_native/results.pxi"
include "_native/message_input.pxi"
include "_native/column_input.pxi"
include "_native/column_arrow.pxi"
include "_native/column_keys.pxi"
include "_native/column_exchange.pxi"
include "_native/column_arguments.pxi"
include "_native/engine.pxi"
include "_native/put_message.pxi"
include "_native/put_many.pxi"
include "_native/put_columns.pxi"
include "_native/engine_wait.pxi"
include "_native/table_rows.pxi"
include "_native/table_input.pxi"
include "_native/put_table.pxi"
include "_native/engine_write.pxi"
include "_native/engine_read.pxi"
include "_native/engine_scan.pxi"
include "_native/codec.pxi"
include "_native/part_index.pxi"
include "_native/part_queue.pxi"
include "_native/part_log.pxi"
include "_native/log_move.pxi"
include "_native/seal.pxi"
include "_native/part_units.pxi"
include "_native/part_saved.pxi"
# ---- for the fault campaigns
include "_native/fuzz_input.pxi"
include "_native/fuzz_targets.pxi"
include "_native/fuzz_arrow.pxi"
include "_native/fuzz.pxi"
include "_native/module_init.pxi"
