# Checks that the properties of a message are plain, for compiled code: none needs special treatment,
# and the unique id has only letters and digits.
from libc.string cimport memchr, memcmp


cdef enum:
    # The most properties whose names are compared with each other.
    NAMES_MAX = 64


cdef enum Wait:
    UNSAID, YES, NO


cdef struct Properties:
    # Where the unique id is; its start is -1 if there is none.
    Py_ssize_t unique_start
    Py_ssize_t unique_stop
    Wait wait


cdef inline bint is_name(
    const unsigned char *name, Py_ssize_t length, const char *wanted, Py_ssize_t wanted_length
) noexcept nogil:
    return length == wanted_length and memcmp(name, wanted, length) == 0


cdef inline bint is_special(const unsigned char *name, Py_ssize_t length) noexcept nogil:
    if length >= 5:
        if memcmp(name, b"__RMQ", 5) == 0:
            return True
        if length >= 6 and (memcmp(name, b"TIMER_", 6) == 0 or memcmp(name, b"INNER_", 6) == 0):
            return True
    return (
        is_name(name, length, b"DELAY", 5)
        or is_name(name, length, b"TRAN_MSG", 8)
        or is_name(name, length, b"POP_CK", 6)
        or is_name(name, length, b"MSG_REGION", 10)
        or is_name(name, length, b"TRACE_ON", 8)
        or is_name(name, length, b"CLUSTER", 7)
    )


cdef inline bint is_plain_id(const unsigned char *value, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at
    cdef unsigned char letter
    if length < 1 or length > 64:
        return False
    for at in range(length):
        letter = value[at]
        if not (48 <= letter <= 57 or 65 <= letter <= 90 or 97 <= letter <= 122):
            return False
    return True


cdef inline bint look(
    const unsigned char *text, Py_ssize_t size, Properties *found, bint is_tidy
) noexcept nogil:
    cdef Py_ssize_t starts[NAMES_MAX]
    cdef Py_ssize_t lengths[NAMES_MAX]
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t entry = 0
    cdef Py_ssize_t stop, name_bytes, value_at, other
    cdef const unsigned char *mark
    found.unique_start = -1
    found.unique_stop = 0
    found.wait = UNSAID
    while entry < size:
        mark = <const unsigned char *>memchr(text + entry, 2, size - entry)
        stop = size if mark == NULL else mark - text
        mark = <const unsigned char *>memchr(text + entry, 1, stop - entry)
        if mark == NULL:
            return False
        name_bytes = mark - (text + entry)
        value_at = entry + name_bytes + 1
        if is_special(text + entry, name_bytes):
            return False
        if is_tidy:
            if name_bytes == 0 or value_at == stop or count == NAMES_MAX:
                return False
            if memchr(text + value_at, 1, stop - value_at) != NULL:
                return False
            for other in range(count):
                if lengths[other] == name_bytes and (
                    memcmp(text + starts[other], text + entry, name_bytes) == 0
                ):
                    return False
            starts[count] = entry
            lengths[count] = name_bytes
            count += 1
        if is_name(text + entry, name_bytes, b"UNIQ_KEY", 8):
            if found.unique_start >= 0 or not is_plain_id(text + value_at, stop - value_at):
                return False
            found.unique_start = value_at
            found.unique_stop = stop
        elif is_name(text + entry, name_bytes, b"WAIT", 4):
            if found.wait != UNSAID:
                return False
            if is_name(text + value_at, stop - value_at, b"true", 4):
                found.wait = YES
            elif is_name(text + value_at, stop - value_at, b"false", 5):
                found.wait = NO
            else:
                return False
        entry = stop + 1
    return True


# Check all properties; returns False if one is special, or unusually written.
cdef inline bint look_at(
    const unsigned char *text, Py_ssize_t size, Properties *found
) noexcept nogil:
    return look(text, size, found, False)


# The same; also returns False if two have the same name, or one lacks a name or value. Single
# messages do not store such properties as received; batches do.
cdef inline bint look_at_tidy(
    const unsigned char *text, Py_ssize_t size, Properties *found
) noexcept nogil:
    return look(text, size, found, True)
