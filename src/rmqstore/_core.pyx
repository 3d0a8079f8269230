"""The core of rmqstore: one extension, assembled from the parts in ``_native/``.

A folder is a layer.  Layers and parts stand in reading order, and each uses only those above it,
which ``scripts/check_layers.py`` checks.  Up to ``offline`` it is C: ``noexcept nogil`` functions
over structs, a status in the return value, no Python object.  ``python`` is what callers see: it
checks arguments, releases the GIL, makes one call, and turns its status into an exception.

The locks, in the order in which a thread may take them, are in ``base/locks.pxd``.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.exc cimport PyErr_CheckSignals, PyErr_Clear
from cpython.list cimport (
    PyList_AsTuple,
    PyList_CheckExact,
    PyList_GET_SIZE,
    PyList_GetSlice,
)
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check, PyLong_CheckExact
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.sequence cimport (
    PySequence_Check, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE,
)
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport (
    PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DATA, PyUnicode_DecodeUTF8, PyUnicode_New,
)
from libc.errno cimport (
    EACCES, EAGAIN, EBADF, EDEADLOCK, EEXIST, EFAULT, EINVAL, EIO, EISDIR, ELOOP, EMFILE, ENFILE,
    ENOENT, ENOMEM, ENOSPC, ENOTDIR, ENXIO, EOPNOTSUPP, EPERM, EROFS, ESTALE, EXDEV,
    errno,
)
from libc.math cimport INFINITY, NAN
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
    uint64_t, int16_t,
)
from libc.stdlib cimport calloc, free, malloc, qsort, realloc, strtod
from libc.string cimport (
    memchr, memcmp, memcpy, memmove, memset, strcmp, strlen, strncmp, strrchr,
)
from rmqstore._native.base.arrow cimport *
from rmqstore._native.base.atomics cimport *
from rmqstore._native.base.bytes cimport *
from rmqstore._native.base.column_view cimport *
from rmqstore._native.base.locks cimport *
from rmqstore._native.base.posix cimport *
from rmqstore._native.base.crc32 cimport (
    crc32_clmul, crc32_has_clmul, crc32_has_wide, crc32_portable, crc32_update, crc32_wide,
)
from rmqstore._native.base.status cimport *
from rmqstore._native.base.faults cimport (
    FAULTS_BUILT, FAULTS_FAILED, FAULTS_PASSED, KILL_POINT, rmq_load_plans, rmq_set_plan,
)
from rmqstore._native.base.java_string cimport (
    JAVA_REPLACEMENT, java_abs_hash, java_decode_utf8, java_hash_utf8, java_load_4, java_load_8,
    utf8_error,
)
from rmqstore._native.format.layout cimport *
from rmqstore._native.base.mapping_guard cimport (
    Guard, guard_enter, guard_install, guard_leave, guard_lost,
)
from rmqstore._native.base.system cimport *

import atexit
from codecs import register_error
from collections.abc import Mapping
from os import fsdecode, fsencode, makedirs, path as os_path, strerror, urandom
from re import compile as compile_pattern
from sys import addaudithook

from rmqstore import bodies, errors, types
from rmqstore.base import arguments, arrays, times
from rmqstore.files import logfiles
from rmqstore.files.links import broken_link
from rmqstore.files.regular import not_regular
from rmqstore.base.warn import log_warning


cdef struct Queue
cdef struct Topic
cdef struct FileSet
cdef struct OpenFiles
cdef struct Store
cdef struct Pending


# base: status codes, bytes, atomics, system calls, threads. Uses nothing.
include "_native/base/worker.pxi"
include "_native/base/turn.pxi"

# format: the bytes on the disk: records, properties, hosts, unique keys. Uses base.
include "_native/format/properties.pxi"
include "_native/format/multi_names.pxi"
include "_native/format/record_parse.pxi"
include "_native/format/record_encode.pxi"
include "_native/format/unique_key.pxi"
include "_native/format/host_text.pxi"

# files: mapped files, and the files of one log or queue. Uses base, format.
include "_native/files/mapped_file.pxi"
include "_native/files/zero_ahead.pxi"
include "_native/files/file_view.pxi"
include "_native/files/file_places.pxi"
include "_native/files/file_set.pxi"
include "_native/files/file_read.pxi"
include "_native/files/listing.pxi"
include "_native/files/file_sizes.pxi"
include "_native/files/file_removal.pxi"
include "_native/files/file_data.pxi"

# queue: consume queues, and the table that finds them. Uses base to files.
include "_native/queue/queue_state.pxi"
include "_native/queue/consume_queue.pxi"
include "_native/queue/queue_ext.pxi"
include "_native/queue/queue_ext_ends.pxi"
include "_native/queue/topic_table.pxi"
include "_native/queue/load_queues.pxi"

# index: index files, and the set of them. Uses base to files.
include "_native/index/index_file.pxi"
include "_native/index/index_write.pxi"
include "_native/index/chain_walk.pxi"
include "_native/index/index_sizes.pxi"
include "_native/index/index_set.pxi"
include "_native/index/index_list.pxi"
include "_native/index/keyless.pxi"

# log: the state of a store; append, dispatch, flush, checkpoint; records read back. Uses base to
# index.
include "_native/log/wakeups.pxi"
include "_native/log/damage.pxi"
include "_native/log/figures.pxi"
include "_native/log/store_state.pxi"
include "_native/log/ownership.pxi"
include "_native/log/lifetime.pxi"
include "_native/log/disk_use.pxi"
include "_native/log/multi_append.pxi"
include "_native/log/commit_log.pxi"
include "_native/log/prepare.pxi"
include "_native/log/record_read.pxi"
include "_native/log/log_cursor.pxi"
include "_native/log/log_compare.pxi"
include "_native/log/log_times.pxi"
include "_native/log/filter_bitmap.pxi"
include "_native/log/ext_recovery.pxi"
include "_native/log/queue_lives.pxi"
include "_native/log/unit_recovery.pxi"
include "_native/log/ext_dispatch.pxi"
include "_native/log/multi_dispatch.pxi"
include "_native/log/dispatch.pxi"
include "_native/log/checkpoint.pxi"
include "_native/log/flush.pxi"
include "_native/log/topic_deletion.pxi"
include "_native/log/retention.pxi"

# recover: checks, completion and filling by an opening. Uses base to log.
include "_native/recover/recover_scan.pxi"
include "_native/recover/quarantine.pxi"
include "_native/recover/lost_end.pxi"
include "_native/recover/recover_log.pxi"
include "_native/recover/queue_lacks.pxi"
include "_native/recover/recover_queues.pxi"
include "_native/recover/index_sound.pxi"
include "_native/recover/index_rebuild.pxi"
include "_native/recover/recover_index.pxi"
include "_native/recover/recover.pxi"

# filter: a reader's selection of records, by tags and properties. Uses base to queue.
include "_native/filter/text_set.pxi"
include "_native/filter/tags.pxi"
include "_native/filter/java_number.pxi"
include "_native/filter/sql_tokens.pxi"
include "_native/filter/sql_program.pxi"
include "_native/filter/sql_values.pxi"
include "_native/filter/sql_parser.pxi"
include "_native/filter/sql_parse.pxi"
include "_native/filter/sql_evaluate.pxi"
include "_native/filter/message_filter.pxi"
include "_native/filter/bitmap_sql.pxi"

# read: a reader's view: new files, ends of queues, `get`, `query`. Uses base to recover.
include "_native/read/refresh.pxi"
include "_native/read/log_end.pxi"
include "_native/read/index_coverage.pxi"
include "_native/read/merged_queues.pxi"
include "_native/read/queued_log.pxi"
include "_native/read/queued_gaps.pxi"
include "_native/read/derived_queues.pxi"
include "_native/read/get_messages.pxi"
include "_native/read/offset_at.pxi"
include "_native/read/query.pxi"
include "_native/read/query_many.pxi"
include "_native/read/verify.pxi"

# scan: records as columns. Uses base to read.
include "_native/scan/output_memory.pxi"
include "_native/scan/column_output.pxi"
include "_native/scan/scan_columns.pxi"
include "_native/scan/scan_filter.pxi"
include "_native/scan/scan_source.pxi"
include "_native/scan/scan_plan.pxi"
include "_native/scan/scan_parts.pxi"
include "_native/scan/scan_units.pxi"
include "_native/scan/scan.pxi"

# store: opening, start of the threads, close. Uses base to read.
include "_native/store/reput.pxi"
include "_native/store/store_open.pxi"

# offline: ranges of a log as units and index entries, for jobs of many processes. Uses base to
# read.
include "_native/offline/log_units.pxi"
include "_native/offline/index_fill.pxi"
include "_native/offline/index_check.pxi"

# wire: frames of RocketMQ's remoting protocol, and clients' hot requests. Uses base to
# offline.
include "_native/wire/header_text.pxi"
include "_native/wire/header.pxi"
include "_native/wire/frame.pxi"
include "_native/wire/answer.pxi"
include "_native/wire/pull_answer.pxi"
include "_native/wire/queue_holds.pxi"
include "_native/wire/send_request.pxi"
include "_native/wire/send_run.pxi"

# python: classes and functions of the module: the only layer with Python objects. Uses all
# above.
include "_native/python/errors.pxi"
include "_native/python/property_names.pxi"
include "_native/python/message.pxi"
include "_native/python/results.pxi"
include "_native/python/arguments.pxi"
include "_native/python/topic_names.pxi"
include "_native/python/unreadable.pxi"
include "_native/python/columns/column.pxi"
include "_native/python/columns/sequences.pxi"
include "_native/python/columns/arrow.pxi"
include "_native/python/columns/maps.pxi"
include "_native/python/columns/exchange.pxi"
include "_native/python/columns/arguments.pxi"
include "_native/python/bitmap_filters.pxi"
include "_native/python/open_store.pxi"
include "_native/python/call_lock.pxi"
include "_native/python/log_places.pxi"
include "_native/python/opening.pxi"
include "_native/python/put/rows.pxi"
include "_native/python/put/input.pxi"
include "_native/python/put/light.pxi"
include "_native/python/put/deflate.pxi"
include "_native/python/put/choose_queue.pxi"
include "_native/python/put/append.pxi"
include "_native/python/put/message.pxi"
include "_native/python/put/many.pxi"
include "_native/python/put/table.pxi"
include "_native/python/put/stored.pxi"
include "_native/python/closing.pxi"
include "_native/python/flush.pxi"
include "_native/python/log_wakeup.pxi"
include "_native/python/topics.pxi"
include "_native/python/recovery.pxi"
include "_native/python/stats.pxi"
include "_native/python/filter_expression.pxi"
include "_native/python/get.pxi"
include "_native/python/at.pxi"
include "_native/python/query.pxi"
include "_native/python/queue_units.pxi"
include "_native/python/queue_ext_units.pxi"
include "_native/python/schedule_units.pxi"
include "_native/python/column_batch.pxi"
include "_native/python/scan_pass.pxi"
include "_native/python/batch_stream.pxi"
include "_native/python/retention.pxi"
include "_native/python/wire/pull.pxi"
include "_native/python/wire/answer.pxi"
include "_native/python/wire/field_names.pxi"
include "_native/python/wire/known_offsets.pxi"
include "_native/python/wire/sends.pxi"
include "_native/python/wire/frame_reader.pxi"
include "_native/python/core.pxi"
include "_native/python/engine.pxi"
include "_native/python/codec.pxi"
include "_native/python/part_index.pxi"
include "_native/python/index_jobs.pxi"
include "_native/python/part_queue.pxi"
include "_native/python/part_log.pxi"
include "_native/python/log_move.pxi"
include "_native/python/seal.pxi"
include "_native/python/part_units.pxi"
include "_native/python/part_saved.pxi"
include "_native/python/module_init.pxi"

# fuzz: for the fault campaigns; nothing in a release, see setup.py. Uses all above.
include "fuzz.pxi"
