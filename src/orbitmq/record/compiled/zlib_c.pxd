# The checksum of zlib's C library, for compiled modules.
cdef extern from "zlib.h" nogil:
    unsigned long crc32(unsigned long crc, const unsigned char *buf, unsigned int len)
