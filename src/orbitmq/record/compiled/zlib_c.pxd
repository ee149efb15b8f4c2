# The checksum of zlib's C library, for what is compiled.
cdef extern from "zlib.h" nogil:
    unsigned long crc32(unsigned long crc, const unsigned char *buf, unsigned int len)
