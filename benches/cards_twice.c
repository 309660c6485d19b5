/* Shows each of the driver's cards several times, so that what several cards do can be tried on fewer.
 *
 *     mkdir twice && gcc -O2 -shared -fPIC -o twice/libcuda.so benches/cards_twice.c -Wl,--no-as-needed -l:libcuda.so.1 -ldl
 *     LD_LIBRARY_PATH=$PWD/twice CUDA_DEVICE_MAX_CONNECTIONS=32 CARDS_TIMES=2 trainer bench …
 *
 * Of two cards, `cuda:0` and `cuda:2` are the first, `cuda:1` and `cuda:3` the second. Kernels of one wait for those of the other on one
 * card: pipelines do that with one thread each, while the many blocks of sums over cards may find no room.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_DEVICE = 101, MOST_CARDS = 64 };

typedef struct { int type, card, flags; } Access;

static void *driver(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return dlsym(library, name);
}

static int cards(int *count) {
    return ((int (*)(int *))driver("cuDeviceGetCount"))(count);
}

static int times(void) {
    const char *text = getenv("CARDS_TIMES");
    return text ? atoi(text) : 2;
}

int cuDeviceGetCount(int *count) {
    int status = cards(count);
    *count *= times();
    return status;
}

int cuDeviceGet(int *card, int index) {
    int count = 0, status = cards(&count);
    if (status) return status;
    if (index < 0 || index >= count * times()) return INVALID_DEVICE;
    return ((int (*)(int *, int))driver("cuDeviceGet"))(card, index % count);
}

int cuDeviceCanAccessPeer(int *can, int one, int other) {
    *can = 1;
    return one == other ? 0 : ((int (*)(int *, int, int))driver("cuDeviceCanAccessPeer"))(can, one, other);
}

/* A card may be named once. */
int cuMemSetAccess(unsigned long long address, size_t bytes, const Access *all, size_t count) {
    Access once[MOST_CARDS];
    size_t found = 0;
    for (size_t next = 0; next < count && found < MOST_CARDS; next++) {
        size_t same = 0;
        while (same < found && memcmp(&once[same], &all[next], sizeof *all)) same++;
        if (same == found) once[found++] = all[next];
    }
    int (*set)(unsigned long long, size_t, const Access *, size_t) = driver("cuMemSetAccess");
    return set(address, bytes, once, found);
}
