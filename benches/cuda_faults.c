/* Faults of the CUDA driver, for benches/torture_gpu.py: refused memory, and a device that is lost.
 *
 *     gcc -O2 -shared -fPIC -o cuda_faults.so benches/cuda_faults.c -ldl
 *     LD_PRELOAD=./cuda_faults.so CUDA_FAULT_MEMORY=7-9 trainer run …     allocations 7 to 9 are refused
 *     LD_PRELOAD=./cuda_faults.so CUDA_FAULT_LOST=500:700 trainer run …   from call 500 on, each answers 700
 *
 * A program that loads the driver asks `dlsym` for each of its functions. This `dlsym` hands out its own
 * functions for those that allocate, launch, copy and wait. They count, and otherwise do what the driver's do.
 * CUDA_FAULT_COUNT=FILE writes the two counts at the end: allocations, and calls of all kinds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2 };

static atomic_long allocations, calls;
static long first = -1, last = -1, lost_at = -1, status;

__attribute__((constructor)) static void begin(void) {
    const char *memory = getenv("CUDA_FAULT_MEMORY"), *lost = getenv("CUDA_FAULT_LOST");
    if (memory && sscanf(memory, "%ld-%ld", &first, &last) == 1)
        last = first;
    if (lost)
        sscanf(lost, "%ld:%ld", &lost_at, &status);
}

__attribute__((destructor)) static void end(void) {
    const char *name = getenv("CUDA_FAULT_COUNT");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) {
        fprintf(file, "%ld %ld\n", atomic_load(&allocations), atomic_load(&calls));
        fclose(file);
    }
}

/* What the next call answers in place of the driver, or 0. */
static long fault(int allocates) {
    long call = ++calls, allocation = allocates ? ++allocations : 0;
    if (lost_at > 0 && call >= lost_at)
        return status;
    return allocates && allocation >= first && allocation <= last ? OUT_OF_MEMORY : 0;
}

/* All arguments of these functions are integers and pointers, at most eleven: more than one takes do no harm. */
typedef long Driver(long, long, long, long, long, long, long, long, long, long, long);
#define FUNCTIONS(F) \
    F(cuMemAlloc_v2, 1) F(cuMemAllocAsync, 1) F(cuMemAllocHost_v2, 1) F(cuMemHostAlloc, 1) F(cuMemCreate, 1) \
    F(cuLaunchKernel, 0) F(cuLaunchKernelEx, 0) F(cuFuncSetAttribute, 0) F(cuModuleLoadData, 0) \
    F(cuMemcpyHtoDAsync_v2, 0) F(cuMemcpyDtoHAsync_v2, 0) F(cuMemcpyDtoDAsync_v2, 0) F(cuMemcpy2DAsync_v2, 0) \
    F(cuStreamSynchronize, 0) F(cuStreamWaitEvent, 0) F(cuEventCreate, 0) F(cuEventRecord, 0) \
    F(cuEventSynchronize, 0) F(cuEventQuery, 0) F(cuCtxSynchronize, 0)
#define WRAPPED(name, allocates) \
    static Driver *real_##name; \
    static long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k) { \
        long answer = fault(allocates); \
        return answer ? answer : real_##name(a, b, c, d, e, f, g, h, i, j, k); \
    }
FUNCTIONS(WRAPPED)

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) {
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real)
            *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
#define CHOSEN(function, allocates) \
    if (strcmp(name, #function) == 0) { \
        *(void **)&real_##function = real(handle, name); \
        return real_##function ? (void *)function : NULL; \
    }
    if (strncmp(name, "cu", 2) == 0) {
        FUNCTIONS(CHOSEN)
    }
    return real(handle, name);
}
