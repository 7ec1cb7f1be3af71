/* The set of free pages (src/kv/free_pages.c) for spin: threads that take pages of two regions and return them, step by step as the atomics
 * allow.
 *
 *   spin -a free_pages.pml && cc -O2 -DSAFETY -DMEMLIM=4000 -o pan pan.c && ./pan -m200000
 *     no errors: no page is held twice, none is lost, no take fails while enough pages are free, and the marks end right (3 million
 *     states, 2 s)
 *   spin -a -DONE_PASS free_pages.pml, the same
 *     an error: who gathers in one pass misses a page that is returned behind it
 *   spin -a -DLATE_MARK free_pages.pml, the same
 *     an error: without a second look at the span a mark stays that hides a page
 *   spin -a -DTWO_BIG free_pages.pml: two that want three of four pages, and one must get them; with -DNO_LOCK too an error: each of the two
 *     holds what the other lacks, and both fail
 *
 * An atomic or d_step block is one atomic instruction of the C code. A region has one span of two pages. The order of memory is taken as
 * sequential here; ThreadSanitizer and the release and acquire order in the C code stand for the rest. */
#define N_REGIONS 2
#define FULL      3 /* both pages are taken */

byte credit[N_REGIONS];  /* the account: pages that nobody claimed */
byte returns = 0;        /* and the returns of all regions so far */
byte taken[N_REGIONS];   /* a bit a page */
bool marked[N_REGIONS];   /* the mark */
byte held[4];            /* by page */
bool locked = false;
byte n_finished = 0, n_failed = 0;

#define BIT(page)     (1 << ((page) & 1))
#define REGION(page)  ((page) >> 1)

/* Finds a claimed page of region r: by its mark first, then by a look at the span. */
inline find(r, page) {
    bool by_mark = true;
    page = 9;
    do
    :: page < 9 -> break
    :: page == 9 && by_mark && marked[r] -> by_mark = false
    :: page == 9 && (!by_mark || !marked[r]) ->
        by_mark = true;
        if
        :: atomic { (taken[r] & 1) == 0 -> page = 2 * r; taken[r] = taken[r] | 1; rest = taken[r]; assert(held[page] == 0); held[page] = 1 }
        :: atomic { (taken[r] & 1) == 1 && (taken[r] & 2) == 0 -> page = 2 * r + 1; taken[r] = taken[r] | 2; rest = taken[r];
                    assert(held[page] == 0); held[page] = 1 }
        :: atomic { taken[r] == FULL -> skip }
        fi;
        if
        :: page < 9 && rest == FULL ->
            marked[r] = true;
#ifndef LATE_MARK
            if
            :: taken[r] != FULL -> marked[r] = false
            :: else
            fi
#endif
        :: else
        fi
    od
}

inline give(page) {
    atomic { held[page] = 0; old = taken[REGION(page)]; taken[REGION(page)] = old & (FULL - BIT(page)) }
    if
    :: old == FULL -> marked[REGION(page)] = false
    :: else
    fi;
    atomic { credit[REGION(page)] = credit[REGION(page)] + 1; returns = returns + 1 }
}

/* Claims up to n in all of the regions, `first` the first; got is what was found. */
inline gather(first, n) {
    got = 0; part[0] = 0; part[1] = 0;
#ifndef NO_LOCK
    atomic { !locked -> locked = true }
#endif
    do
    :: true ->
        before = returns;
        i = 0;
        do
        :: i < N_REGIONS && got < n ->
            r = (first + i) & 1;
            atomic {
                if
                :: credit[r] > n - got -> more = n - got
                :: else -> more = credit[r]
                fi;
                credit[r] = credit[r] - more;
                part[r] = part[r] + more;
                got = got + more;
                more = 0
            }
            i++
        :: else -> break
        od;
        i = 0;
#ifdef ONE_PASS
        break
#else
        if
        :: got < n && returns != before -> skip
        :: else -> break
        fi
#endif
    od;
    if
    :: got < n -> atomic { credit[0] = credit[0] + part[0]; }
        atomic { credit[1] = credit[1] + part[1] }
    :: else
    fi;
#ifndef NO_LOCK
    locked = false
#endif
}

/* Takes one page and returns it, n_rounds times: from its home, either region, without the lock, else from any. */
proctype small(byte n_rounds) {
    byte round = 0, base, page, rest = 0, old = 0, got = 0, part[2], before = 0, i = 0, r = 0, more = 0;
    do
    :: round < n_rounds ->
        round++;
        if
        :: base = 0
        :: base = 1
        fi;
        if
        :: atomic { credit[base] > 0 -> credit[base] = credit[base] - 1; r = base; got = 1 }
        :: atomic { credit[base] == 0 -> got = 0 }
        fi;
        if
        :: got == 0 ->
            gather(base, 1);
            if
            :: part[0] > 0 -> r = 0
            :: else -> r = 1
            fi
        :: else
        fi;
        if
        :: got > 0 -> find(r, page); give(page)
        :: else
        fi;
        got = 0
    :: else -> break
    od;
    n_finished++
}

/* Takes BIG pages. As many are free at every moment where the others are small; of two that are big one must succeed. */
proctype big(byte n; byte base) {
    byte page, rest = 0, old = 0, got = 0, part[2], before = 0, i = 0, r = 0, more = 0, j = 0, pages[3];
    gather(base, n);
    if
    :: got == n ->
        j = 0;
        do
        :: j < n ->
            if
            :: part[0] > 0 -> part[0] = part[0] - 1; r = 0
            :: else -> r = 1
            fi;
            find(r, page);
            pages[j] = page;
            j++
        :: else -> break
        od;
        j = 0;
        do
        :: j < n -> page = pages[j]; give(page); j++
        :: else -> break
        od
    :: else -> n_failed++
    fi;
    n_finished++
}

/* When all are done every page is free and found. */
proctype audit(byte n) {
    n_finished == n;
    d_step {
        assert(credit[0] == 2 && credit[1] == 2 && taken[0] == 0 && taken[1] == 0 && !marked[0] && !marked[1]);
#ifdef TWO_BIG
        assert(n_failed < 2)
#else
        assert(n_failed == 0)
#endif
    }
}

init {
    atomic {
        credit[0] = 2;
        credit[1] = 2;
#ifdef TWO_BIG
        run big(3, 0);
        run big(3, 1);
        run audit(2)
#else
        run small(2);
        run small(1);
        run big(2, 0);
        run audit(3)
#endif
    }
}
