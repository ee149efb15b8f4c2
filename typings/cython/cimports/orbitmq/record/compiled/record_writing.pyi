import cython

class RecordFields:
    queue_id: int
    flag: int
    system_flag: int
    reconsume_times: int
    queue_offset: int
    physical_offset: int
    born_ms: int
    store_ms: int
    prepared_offset: int
    born_host: cython.p_uchar
    born_host_bytes: int
    store_host: cython.p_uchar
    store_host_bytes: int
    topic: cython.p_uchar
    topic_bytes: int

def fields_bytes(fields: RecordFields) -> int: ...
def put_fields(
    record: cython.p_uchar,
    fields: RecordFields,
    body: cython.p_uchar,
    body_bytes: int,
    properties_bytes: int,
) -> cython.p_uchar: ...
def begin_record(record: cython.p_uchar, fields: RecordFields, size: int) -> None: ...
