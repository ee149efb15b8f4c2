# Big-endian numbers, as Java writes them, for compiled modules.
cdef inline unsigned int get_32(const unsigned char *at) noexcept nogil:
    return (
        (<unsigned int>at[0] << 24)
        | (<unsigned int>at[1] << 16)
        | (<unsigned int>at[2] << 8)
        | <unsigned int>at[3]
    )


cdef inline long long get_64(const unsigned char *at) noexcept nogil:
    return <long long>((<unsigned long long>get_32(at) << 32) | get_32(at + 4))


cdef inline void put_32(unsigned char *at, unsigned int value) noexcept nogil:
    at[0] = (value >> 24) & 255
    at[1] = (value >> 16) & 255
    at[2] = (value >> 8) & 255
    at[3] = value & 255


cdef inline void put_64(unsigned char *at, long long value) noexcept nogil:
    put_32(at, <unsigned int>(<unsigned long long>value >> 32))
    put_32(at + 4, <unsigned int>(<unsigned long long>value))
