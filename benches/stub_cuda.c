/* A CUDA driver and NVRTC without a card: what a process would hold of an H100, to the byte, and what launching takes its host.
 *
 *     mkdir stub && gcc -O2 -shared -fPIC -Wl,-soname,libcuda.so -o stub/libcuda.so benches/stub_cuda.c && ln -s libcuda.so stub/libnvrtc.so
 *     LD_LIBRARY_PATH=stub CUDA_PATH=/usr HOME=$(mktemp -d) trainer bench CONFIG --set device.use='"cuda"'
 *
 * Sizes and order of allocations do not depend on numbers, so steps take the pages here that they take on a card. Kernels
 * are not compiled and do nothing, and whatever is read from the card is zero.
 * Its home must not be yours: machine code that is none would be found there later.
 *
 * STUB_CARDS=N      so many cards (1; 8 at most), which reach each other's memory
 * STUB_FREE=MIB     memory that is free at first on each (80,807: a card without other processes); more is refused
 * STUB_LOG=FILE     the most bytes that were held, of one card and pinned, calls, and kernels compiled, written at the end;
 *                   then the launches of each kernel
 * STUB_TRACE=FILE   each allocation and release as it happens: `+BYTES held` or `-BYTES held`, and `!BYTES held` where there is no room
 * STUB_CAPABILITY=N ten times the major number of the compute capability, and the minor number (90)
 * STUB_ECHO=1       NVRTC gives back the text that it is given, in the place of PTX
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Address;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2 };

static const uint64_t MIB = 1 << 20, TOTAL = 81079ull << 20;
/* The driver gives out memory in units of so many bytes. */
static const uint64_t UNIT = 2 << 20;

static atomic_ullong next_handle = 0x1000, launches, allocations, compiled;
enum { MOST_KERNELS = 1 << 12 };
/* Functions that were asked for, by the name of their entry. */
static struct Kernel { char name[128]; atomic_ullong launches; } kernel[MOST_KERNELS];
static int kernels;
enum { MOST_CARDS = 8 };
static int cards = 1, capability = 90;
/* The card whose context is current. */
static _Thread_local int card;
static uint64_t free_at_first = 80807ull << 20, held[MOST_CARDS], most, pinned, most_pinned;
static FILE *trace;

/* What is held: few and large, so a list will do. */
enum { MOST_BLOCKS = 1 << 16 };
static struct { Address at; uint64_t bytes; int pinned, card; } blocks[MOST_BLOCKS];
static int count;
static Address next_address = 0x700000000000;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void) { while (atomic_flag_test_and_set(&busy)); }
static void unlock(void) { atomic_flag_clear(&busy); }

__attribute__((constructor)) static void begin(void) {
    const char *mebibytes = getenv("STUB_FREE"), *name = getenv("STUB_TRACE"), *wanted = getenv("STUB_CARDS");
    const char *number = getenv("STUB_CAPABILITY");
    if (number)
        capability = atoi(number);
    if (wanted && atoi(wanted) >= 1 && atoi(wanted) <= MOST_CARDS)
        cards = atoi(wanted);
    if (mebibytes)
        free_at_first = strtoull(mebibytes, NULL, 10) * MIB;
    trace = name ? fopen(name, "w") : NULL;
}

__attribute__((destructor)) static void end(void) {
    const char *name = getenv("STUB_LOG");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) {
        fprintf(file, "{\"held\":%llu,\"pinned\":%llu,\"allocations\":%llu,\"launches\":%llu,\"compiled\":%llu}\n",
                (unsigned long long)most,
                (unsigned long long)most_pinned, (unsigned long long)allocations, (unsigned long long)launches,
                (unsigned long long)compiled);
        for (int place = 0; place < kernels; place++)
            fprintf(file, "%llu %s\n", (unsigned long long)kernel[place].launches, kernel[place].name);
        fclose(file);
    }
    if (trace)
        fclose(trace);
}

static void told(char sign, uint64_t bytes) {
    if (trace) {
        fprintf(trace, "%c%llu %llu\n", sign, (unsigned long long)bytes, (unsigned long long)held[card]);
        fflush(trace);
    }
}

static int take(Address *at, size_t bytes) {
    uint64_t whole = (bytes + UNIT - 1) / UNIT * UNIT;
    if (bytes == 0)
        return INVALID;
    lock();
    int full = held[card] + whole > free_at_first || count == MOST_BLOCKS;
    if (!full) {
        *at = next_address;
        next_address += whole;
        held[card] += whole;
        most = held[card] > most ? held[card] : most;
        blocks[count].at = *at, blocks[count].bytes = whole, blocks[count].card = card, blocks[count++].pinned = 0;
        allocations++;
    }
    told(full ? '!' : '+', bytes);
    unlock();
    return full ? OUT_OF_MEMORY : OK;
}

static int take_pinned(void **at, size_t bytes) {
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*at)
        return OUT_OF_MEMORY;
    lock();
    pinned += bytes;
    most_pinned = pinned > most_pinned ? pinned : most_pinned;
    blocks[count].at = (Address)*at, blocks[count].bytes = bytes, blocks[count++].pinned = 1;
    unlock();
    return OK;
}

static int give_back(Address at) {
    lock();
    int place = 0;
    while (place < count && blocks[place].at != at)
        place++;
    int known = place < count;
    if (known) {
        uint64_t bytes = blocks[place].bytes;
        if (blocks[place].pinned) {
            pinned -= bytes;
            free((void *)at);
        } else {
            held[blocks[place].card] -= bytes;
            told('-', bytes);
        }
        blocks[place] = blocks[--count];
    }
    unlock();
    return known ? OK : INVALID;
}

static int handle(void **given) {
    *given = (void *)(uintptr_t)(next_handle += 16);
    return OK;
}

/* The card. */
int cuInit(unsigned flags) { return OK; }
int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuDeviceGetCount(int *number) { *number = cards; return OK; }
int cuDeviceGet(int *device, int index) { *device = index; return index < 0 || index >= cards ? INVALID : OK; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "NVIDIA H100 80GB HBM3"); return OK; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 1 + device, 16); return OK; }
int cuDeviceGetUuid(char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceGetPCIBusId(char *name, int length, int device) { snprintf(name, length, "0000:%02x:00.0", 1 + device); return OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = TOTAL; return OK; }
int cuDeviceCanAccessPeer(int *can, int one, int other) { *can = 1; return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    static const struct { int attribute, value; } KNOWN[] = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, /* threads and blocks */
        {8, 49152}, {10, 32}, {12, 65536}, {16, 132}, {39, 2048}, {81, 233472}, {82, 65536}, {97, 232448},
    };
    enum { MAJOR = 75, MINOR = 76 };
    *value = attribute == MAJOR ? capability / 10 : attribute == MINOR ? capability % 10 : 1;
    for (size_t place = 0; place < sizeof KNOWN / sizeof *KNOWN; place++)
        if (KNOWN[place].attribute == attribute)
            *value = KNOWN[place].value;
    return OK;
}
int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = free_at_first - held[card];
    *total = TOTAL;
    return OK;
}

/* Contexts, streams and events. */
static char contexts[MOST_CARDS];
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = contexts + device; return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
int cuCtxGetCurrent(void **context) { *context = contexts + card; return OK; }
int cuCtxSetCurrent(void *context) { card = context ? (char *)context - contexts : 0; return OK; }
int cuCtxGetDevice(int *device) { *device = card; return OK; }
int cuCtxSynchronize(void) { return OK; }
/* No memory is held for stacks. */
int cuCtxGetLimit(size_t *value, int limit) { (void)limit; *value = 0; return OK; }
int cuCtxSetLimit(int limit, size_t value) { (void)limit; (void)value; return OK; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
int cuStreamCreate(void **stream, unsigned flags) { return handle(stream); }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return handle(stream); }
int cuStreamDestroy_v2(void *stream) { return OK; }
int cuStreamSynchronize(void *stream) { return OK; }
int cuStreamQuery(void *stream) { return OK; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return OK; }
int cuStreamIsCapturing(void *stream, int *state) { *state = 0; return OK; }
int cuEventCreate(void **event, unsigned flags) { return handle(event); }
int cuEventDestroy_v2(void *event) { return OK; }
int cuEventRecord(void *event, void *stream) { return OK; }
int cuEventSynchronize(void *event) { return OK; }
int cuEventQuery(void *event) { return OK; }
int cuEventElapsedTime(float *milliseconds, void *from, void *to) { *milliseconds = 1; return OK; }
int cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) { *milliseconds = 1; return OK; }
int cuGetErrorName(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}
int cuGetErrorString(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : "invalid argument";
    return OK;
}

/* Memory. */
int cuMemAlloc_v2(Address *at, size_t bytes) { return take(at, bytes); }
int cuMemAllocAsync(Address *at, size_t bytes, void *stream) { return take(at, bytes); }
int cuDeviceGetMemPool(void **pool, int device) { return handle(pool); }
int cuMemPoolSetAccess(void *pool, const void *access, size_t number) { return OK; }
int cuMemFree_v2(Address at) { return give_back(at); }
int cuMemFreeAsync(Address at, void *stream) { return give_back(at); }
int cuMemAllocHost_v2(void **at, size_t bytes) { return take_pinned(at, bytes); }
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) { return take_pinned(at, bytes); }
int cuMemHostGetDevicePointer_v2(Address *at, void *pointer, unsigned flags) { *at = (Address)pointer; return OK; }
int cuMemFreeHost(void *at) { return give_back((Address)at); }
int cuMemGetAllocationGranularity(size_t *step, const void *wanted, int kind) { *step = UNIT; return OK; }
int cuMemCreate(Address *given, size_t bytes, const void *wanted, uint64_t flags) { return take(given, bytes); }
int cuMemRelease(Address given) { return give_back(given); }
int cuMemAddressReserve(Address *at, size_t bytes, size_t aligned, Address wanted, uint64_t flags) {
    lock();
    *at = next_address;
    next_address += bytes;
    unlock();
    return OK;
}
int cuMemAddressFree(Address at, size_t bytes) { return OK; }
int cuMemMap(Address at, size_t bytes, size_t offset, Address given, uint64_t flags) { return OK; }
int cuMemUnmap(Address at, size_t bytes) { return OK; }
int cuMemSetAccess(Address at, size_t bytes, const void *access, size_t number) { return OK; }
int cuStreamWriteValue32_v2(void *stream, Address at, unsigned value, unsigned flags) { return OK; }
int cuStreamWaitValue32_v2(void *stream, Address at, unsigned value, unsigned flags) { return OK; }
int cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) { return OK; }
int cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) { return OK; }
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *stream) { return OK; }
int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) { memset(to, 0, bytes); return OK; }
int cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) { memset(to, 0, bytes); return OK; }
int cuMemsetD8Async(Address at, unsigned char value, size_t bytes, void *stream) { return OK; }
int cuMemsetD8_v2(Address at, unsigned char value, size_t bytes) { return OK; }
struct Copy2D {
    size_t source_x, source_y;
    int source_kind;
    const void *source_host;
    Address source_device;
    void *source_array;
    size_t source_pitch, x, y;
    int kind;
    void *host;
    Address device;
    void *array;
    size_t pitch, width, height;
};
int cuMemcpy2DAsync_v2(const struct Copy2D *copy, void *stream) {
    enum { HOST = 1 };
    for (size_t row = 0; copy->kind == HOST && row < copy->height; row++)
        memset((char *)copy->host + row * copy->pitch, 0, copy->width);
    return OK;
}

/* Code. */
int cuModuleLoadData(void **module, const void *image) { return handle(module); }
int cuModuleLoadDataEx(void **module, const void *image, unsigned options, void *names, void *values) { return handle(module); }
int cuModuleUnload(void *module) { return OK; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    lock();
    int place = 0;
    while (place < kernels && strcmp(kernel[place].name, name) != 0)
        place++;
    if (place == kernels && kernels < MOST_KERNELS)
        snprintf(kernel[kernels++].name, sizeof kernel->name, "%s", name);
    unlock();
    *function = place < kernels ? &kernel[place] : NULL;
    return place < kernels ? OK : INVALID;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { return OK; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = 0; return OK; }
int cuTensorMapEncodeTiled(void *map, ...) { return OK; }
int cuLaunchKernel(struct Kernel *function, ...) { launches++, function->launches++; return OK; }
int cuLaunchKernelEx(void *config, ...) { launches++; return OK; }
int cuLaunchCooperativeKernel(void *function, ...) { launches++; return OK; }

/* NVRTC. A program is its text where that is wanted back, and else a number. */
static const char CODE[] = "none";
static const char *code_of(const void *program) { return getenv("STUB_ECHO") ? program : CODE; }
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return OK; }
int nvrtcCreateProgram(void **program, const char *text, const char *name, int headers, void *texts, void *names) {
    return getenv("STUB_ECHO") ? !(*program = strdup(text)) : handle(program);
}
int nvrtcCompileProgram(void *program, int count_of_options, void *options) { compiled++; return OK; }
int nvrtcDestroyProgram(void **program) { return OK; }
int nvrtcGetPTXSize(void *program, size_t *bytes) { *bytes = strlen(code_of(program)) + 1; return OK; }
int nvrtcGetPTX(void *program, char *code) { strcpy(code, code_of(program)); return OK; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { *bytes = sizeof CODE; return OK; }
int nvrtcGetCUBIN(void *program, char *code) { memcpy(code, CODE, sizeof CODE); return OK; }
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { *bytes = 1; return OK; }
int nvrtcGetProgramLog(void *program, char *text) { *text = 0; return OK; }
const char *nvrtcGetErrorString(int error) { return "error"; }
