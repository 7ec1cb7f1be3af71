/* The shares of the thread pool (src/base/thread_pool.c) for spin: a caller and two workers run three runs of different numbers of tasks,
 * step by step as the atomics allow. Workers may be late by any number of runs.
 *
 *   spin -a thread_pool.pml && cc -O2 -DSAFETY -DMEMLIM=4000 -o pan pan.c && ./pan -m200000
 *     no errors: each task of a run is done once, with that run's function, before the run ends, and all workers end
 *   spin -a -DNO_RUN thread_pool.pml, the same
 *     an error: shares that do not say of which run they are, and which the caller begins, give a late worker a task of another run
 *   spin -a -DEARLY_COUNT thread_pool.pml, the same
 *     an error: who counts a task that is not done lets its run end
 *   spin -a -DLATE_FUNCTION thread_pool.pml, the same
 *     an error: a run that is published before its function is run with the function of the one before
 *
 * An atomic block is one atomic instruction of the C code. The order of memory is taken as sequential here; ThreadSanitizer and the release
 * and acquire order in the C code stand for the rest. */
#define N_WORKERS 3
#define N_RUNS    3
#define MOST      4

byte published_run = 0, published_n = 0;
byte share_run[N_WORKERS], share_next[N_WORKERS];
byte function = 0; /* the run that it belongs to */
byte n_done = 0, n_expected = 0;
byte times[MOST]; /* that each task of the run is done */
bool closing = false;

#define N_TASKS(this_run) (this_run == 1 -> 4 : (this_run == 2 -> 2 : 3))

/* Runs what is left of a share in run `this_run` of n tasks; sets count. */
inline run_share(share) {
    count = 0;
    do
    :: true ->
        atomic { next_run = share_run[share]; next = share_next[share] }
#ifndef NO_RUN
        if
        :: next_run > this_run -> break
        :: next_run < this_run -> task = share
        :: else -> task = share + next * N_WORKERS
        fi;
#else
        task = share + next * N_WORKERS;
#endif
        if
        :: task >= n -> break
        :: else
        fi;
        atomic {
            if
            :: share_run[share] == next_run && share_next[share] == next ->
#ifndef NO_RUN
                share_next[share] = (next_run == this_run -> next + 1 : 1);
                share_run[share] = this_run;
#else
                share_next[share] = next + 1;
#endif
                is_taken = true
            :: else -> is_taken = false
            fi
        }
        if
        :: is_taken ->
            assert(function == this_run);
#ifdef EARLY_COUNT
            if
            :: number > 0 -> n_done = n_done + 1
            :: else
            fi;
#endif
            atomic { times[task] = times[task] + 1; assert(times[task] == 1) }
            count++
        :: else
        fi
    od
}

proctype worker(byte number) {
    byte seen = 0, this_run, n, i, share, count, next_run, next, task;
    bool is_taken;
    do
    :: published_run != seen ->
        atomic { this_run = published_run; n = published_n }
        i = 0;
        do
        :: i < N_WORKERS ->
            share = (number + i) % N_WORKERS;
            run_share(share);
#ifndef EARLY_COUNT
            n_done = n_done + count;
#endif
            i++
        :: else -> break
        od;
        seen = this_run
    :: closing -> break
    od
}

active proctype caller() {
    byte number = 0, this_run, n, i, left, count, next_run, next, task;
    bool is_taken;
    atomic { run worker(1); run worker(2) }
    for (this_run : 1 .. N_RUNS) {
        n = N_TASKS(this_run);
#ifdef NO_RUN
        atomic { share_next[0] = 0; share_next[1] = 0; share_next[2] = 0 }
#endif
#ifndef LATE_FUNCTION
        function = this_run;
#endif
        atomic { published_run = this_run; published_n = n }
#ifdef LATE_FUNCTION
        function = this_run;
#endif
        left = n;
        i = 0;
        do
        :: i < N_WORKERS -> run_share(i); left = left - count; i++
        :: else -> break
        od;
        n_expected = n_expected + left;
        n_done == n_expected;
        for (i : 0 .. n - 1) {
            assert(times[i] == 1);
            times[i] = 0
        }
    }
    closing = true
}
