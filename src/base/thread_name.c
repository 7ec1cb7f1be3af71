#include "base/thread_name.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define COMMON_NAME 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;            /* the key could be created; without it, names are never released */
static _Atomic uint64_t in_use; /* one bit for each of the names 1 .. 63 */

static void drop_name(void *name) {
    atomic_fetch_and_explicit(&in_use, ~(UINT64_C(1) << (uintptr_t)name), memory_order_relaxed);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, drop_name) == 0;
}

static int32_t thread_name_take_name(void) {
    uint64_t used = atomic_load_explicit(&in_use, memory_order_relaxed), unused;
    pthread_once(&once, make_key);
    do {
        unused = ~used & ~UINT64_C(1);
        if (unused == 0) {
            return COMMON_NAME;
        }
    } while (!atomic_compare_exchange_weak_explicit(&in_use, &used, used | (unused & -unused),
                                                    memory_order_relaxed, memory_order_relaxed));
    int32_t name = __builtin_ctzll(unused);
    if (has_key) {
        (void)pthread_setspecific(key, (void *)(uintptr_t)name); /* on failure the name remains in use */
    }
    return name;
}

int32_t thread_name(void) {
    static _Thread_local int32_t name;
    if (name == 0) {
        name = thread_name_take_name();
    }
    return name;
}
