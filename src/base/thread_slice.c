/* syscall() is outside POSIX. */
#define _DEFAULT_SOURCE

#include "base/thread_slice.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

void thread_set_slice(int32_t us) {
    struct sched_attr a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, (unsigned)sizeof a, 0) == 0 &&
        (a.sched_policy == SCHED_NORMAL || a.sched_policy == SCHED_BATCH)) {
        a.sched_runtime = (uint64_t)us * 1000;
        (void)syscall(SYS_sched_setattr, 0, &a, 0); /* on failure nothing changes */
    }
}
