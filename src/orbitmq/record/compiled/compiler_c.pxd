# What C compilers may not do, for what is compiled: move a write from one side of `keep_order` to the other.
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
