# C types for appender.py when it is compiled; without them it behaves the same, only slower.
cimport cython

cdef object encode_batch_records
cdef object encode_record
cdef object MessageError
cdef int BLANK_BYTES_MIN
cdef long long BORN_HOST_V6
cdef long long STORE_HOST_V6
cdef long long UNQUEUED
cdef long long _HOSTS_V6
cdef Py_ssize_t FIXED_BYTES
cdef Py_ssize_t HOST_BYTES_V4
cdef Py_ssize_t HOST_BYTES_V6
cdef Py_ssize_t PROPERTIES_BYTES_MAX
cdef Py_ssize_t TOPIC_BYTES_MAX_V1


@cython.final
cdef class Appender:
    cdef readonly object lock
    cdef object _acquire
    cdef object _release
    cdef object _log
    cdef bytes _store_host
    cdef long long _hosts_flag
    cdef public Py_ssize_t body_bytes_max
    cdef object _last_store_ms
    cdef dict _next_offsets
    cdef object _obstacles
    cdef dict _errors
    cdef object _on_growth
    cdef object _memory
    cdef long long _upkeep_check_bytes
    cdef long long _next_upkeep_check
    cdef object _view
    cdef long long _first_offset
    cdef long long _room_end

    @cython.locals(size=Py_ssize_t, key=tuple)
    cpdef tuple append(
        self, bytes topic, queue_id, bytes body, bytes properties, flag, system_flag, born_ms,
        bytes born_host, reconsume_times, prepared_offset, now_ms,
    )
    cpdef list append_batch(self, bytes topic, queue_id, entries, now_ms)
    @cython.locals(whole=Py_ssize_t, key=tuple)
    cpdef append_packed(
        self, bytes topic, queue_id, bytes packed, start, end, Py_ssize_t count,
        Py_ssize_t content_bytes, bytes broker_properties, born_ms, bytes born_host,
        reconsume_times, now_ms,
    )
    cdef _write_batch(self, bytes topic, queue_id, entries, list places)
    cdef _make_room(self, size)
    cdef _check_upkeep(self, long long end)
    cdef _record_flag(self, system_flag, bytes born_host)
    @cython.locals(body_bytes=Py_ssize_t, topic_bytes=Py_ssize_t, properties_bytes=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _checked_size(self, bytes topic, bytes body, bytes properties, system_flag) except -1
