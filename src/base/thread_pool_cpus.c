/* The default number of threads: from affinity, cores and cgroup quota. */
#include "base/cgroup.h"
#include "base/thread_pool.h"
#include "base/topology.h"

int32_t thread_pool_cpus(void) {
    cpu_mask allowed;
    topology all;
    double cpus = 1;
    if (cpu_mask_get(pthread_self(), &allowed)) {
        topology_read("/sys", &allowed, &all);
        cpus = all.n_cores;
    }
    cpus = cgroup_cpus("", cpus);
    int32_t whole = (int32_t)cpus;
    whole += (double)whole < cpus; /* part of a processor is worth a thread */
    return whole > 1 ? whole : 1;
}
