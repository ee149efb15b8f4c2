# The layout of a record, for compiled modules that write records.
from libc.string cimport memcpy

from orbitmq.record.compiled.big_endian cimport put_32, put_64
from orbitmq.record.compiled.zlib_c cimport crc32


# The fields of a record beside its body and properties.
cdef struct RecordFields:
    int queue_id
    int flag
    int system_flag
    int reconsume_times
    long long queue_offset
    long long physical_offset
    long long born_ms
    long long store_ms
    long long prepared_offset
    const unsigned char *born_host
    Py_ssize_t born_host_bytes
    const unsigned char *store_host
    Py_ssize_t store_host_bytes
    const unsigned char *topic
    Py_ssize_t topic_bytes


# Bytes of a record beside its body and properties.
cdef inline Py_ssize_t fields_bytes(const RecordFields *fields) noexcept nogil:
    return (
        75
        + fields.born_host_bytes
        + fields.store_host_bytes
        + (1 if fields.topic_bytes > 127 else 0)
        + fields.topic_bytes
    )


# Writes all of a record except its start (`begin_record`) and its properties; returns where the
# properties go. The caller has checked that the record fits the memory.
cdef inline unsigned char *put_fields(
    unsigned char *record,
    const RecordFields *fields,
    const unsigned char *body,
    Py_ssize_t body_bytes,
    Py_ssize_t properties_bytes,
) noexcept nogil:
    cdef unsigned char *to = record + 48
    put_32(record + 8, <unsigned int>crc32(0, body, <unsigned int>body_bytes) & 0x7FFFFFFF)
    put_32(record + 12, <unsigned int>fields.queue_id)
    put_32(record + 16, <unsigned int>fields.flag)
    put_64(record + 20, fields.queue_offset)
    put_64(record + 28, fields.physical_offset)
    put_32(record + 36, <unsigned int>fields.system_flag)
    put_64(record + 40, fields.born_ms)
    memcpy(to, fields.born_host, fields.born_host_bytes)
    to += fields.born_host_bytes
    put_64(to, fields.store_ms)
    memcpy(to + 8, fields.store_host, fields.store_host_bytes)
    to += 8 + fields.store_host_bytes
    put_32(to, <unsigned int>fields.reconsume_times)
    put_64(to + 4, fields.prepared_offset)
    put_32(to + 12, <unsigned int>body_bytes)
    memcpy(to + 16, body, body_bytes)
    to += 16 + body_bytes
    if fields.topic_bytes > 127:
        to[0] = 0
        to += 1
    to[0] = fields.topic_bytes & 255
    memcpy(to + 1, fields.topic, fields.topic_bytes)
    to += 1 + fields.topic_bytes
    to[0] = (properties_bytes >> 8) & 255
    to[1] = properties_bytes & 255
    return to + 2


# Writes the start of a record: its size, and the magic number of its version.
cdef inline void begin_record(
    unsigned char *record, const RecordFields *fields, Py_ssize_t size
) noexcept nogil:
    cdef unsigned long long magic = 0xDAA320AB if fields.topic_bytes > 127 else 0xDAA320A7
    put_64(record, <long long>((<unsigned long long>size << 32) | magic))
