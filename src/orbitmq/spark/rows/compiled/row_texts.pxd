# Texts of rows, for compiled code: where names and values end, and hosts as address:port.
from libc.string cimport memcpy
from orbitmq.record.compiled.big_endian cimport get_32

cdef enum:
    # As long as 255.255.255.255:65535.
    HOST_TEXT_BYTES_MAX = 21


# Whether none of eight bytes is below 3, as the ends of names and values are.
cdef inline bint has_no_marks(const unsigned char *text) noexcept nogil:
    cdef unsigned long long word
    memcpy(&word, text, 8)
    return not (word - 0x0303030303030303ULL) & ~word & 0x8080808080808080ULL


# Write a number below 100,000 in decimal digits; returns how many.
cdef inline Py_ssize_t put_number(unsigned char *to, unsigned int number) noexcept nogil:
    cdef Py_ssize_t digits = 1
    cdef Py_ssize_t at
    cdef unsigned int limit = 10
    while number >= limit:
        digits += 1
        limit *= 10
    at = digits
    while at > 0:
        at -= 1
        to[at] = 48 + number % 10
        number //= 10
    return digits


# Write an IPv4 host; returns its size. Only the lower 16 bits of the port are used, so that it
# always fits.
cdef inline Py_ssize_t put_host(unsigned char *to, const unsigned char *host) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef int part
    for part in range(4):
        at += put_number(to + at, host[part])
        to[at] = c"." if part < 3 else c":"
        at += 1
    return at + put_number(to + at, get_32(host + 4) & 0xFFFF)
