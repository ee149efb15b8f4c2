# A compiler barrier for compiled modules: no write may move across `keep_order`.
cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define keep_order() _ReadWriteBarrier()
    #else
    #define keep_order() __asm__ __volatile__("" ::: "memory")
    #endif
    """
    void keep_order() nogil
