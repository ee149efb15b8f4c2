# Checks of text, for compiled modules.
from libc.string cimport memcpy


# Whether bytes are UTF-8, by Unicode's strict rules.
cdef inline bint is_utf8(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t more
    cdef unsigned long long word
    cdef unsigned char first, low, high
    while at < size:
        if size - at >= 8:
            # Most texts are ASCII, which is checked eight bytes at a time.
            memcpy(&word, text + at, 8)
            if not word & 0x8080808080808080ULL:
                at += 8
                continue
        first = text[at]
        at += 1
        if first < 0x80:
            continue
        # The range of the second byte depends on the first; later ones have the full range.
        low = 0x80
        high = 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if more > size - at:
            return False
        while more > 0:
            if text[at] < low or text[at] > high:
                return False
            low = 0x80
            high = 0xBF
            at += 1
            more -= 1
    return True


# Whether eight bytes are ASCII that JSON leaves unescaped: no control characters, quotes or
# backslashes.
cdef inline bint is_plain_text(const unsigned char *text) noexcept nogil:
    cdef unsigned long long word, quotes, slashes
    memcpy(&word, text, 8)
    quotes = word ^ 0x2222222222222222ULL
    slashes = word ^ 0x5C5C5C5C5C5C5C5CULL
    # A byte that becomes 0, or was below 32, borrows from its own highest bit.
    return not (
        word
        | (word - 0x2020202020202020ULL)
        | (quotes - 0x0101010101010101ULL)
        | (slashes - 0x0101010101010101ULL)
    ) & 0x8080808080808080ULL
