/* The pool's free list (src/kv/pool.c) for spin: threads that reserve one or two pages and give them back, step by step as the atomics allow.
 *
 *   spin -a free_list.pml && cc -O2 -DSAFETY -DMEMLIM=4000 -o pan pan.c && ./pan -m200000
 *     no errors: no page is held twice, and none is lost (23 million states, 80 s, 1.7 GB)
 *   spin -a -DNO_TAG free_list.pml, the same
 *     an error: without the tag a stale exchange succeeds (ABA)
 *
 * An atomic or d_step block is one atomic instruction of the C code; next[] is read and written link by link, as there. The order of memory is
 * taken as sequential here; ThreadSanitizer and the release and acquire order in the C code stand for the rest. */
#define N_PAGES   3
#define N_THREADS 3
#define N_ROUNDS  2
#define END       7

byte top = 0;
byte tag = 0;
byte credit = N_PAGES;
byte next[N_PAGES];
bool held[N_PAGES];
byte n_finished = 0;

#ifdef NO_TAG
#define SAME   (top == old_top)
#define RAISE  skip
#else
#define SAME   (top == old_top && tag == old_tag)
#define RAISE  tag = tag + 1
#endif

inline take(i) {
    assert(!held[i]);
    held[i] = true
}

proctype worker() {
    byte round = 0, n, old_top, old_tag, first, second, rest;
    do
    :: round < N_ROUNDS ->
        round++;
        /* claim */
        if
        :: n = 1
        :: n = 2
        fi;
        if
        :: atomic { credit >= n -> credit = credit - n }
        :: atomic { credit < n -> n = 0 }
        fi;
        if
        :: n > 0 ->
            /* pop n in one exchange */
            do
            :: true ->
                d_step { old_top = top; old_tag = tag; first = old_top; second = END }
                if
                :: first == END -> goto again
                :: else
                fi;
                rest = next[first];
                if
                :: n == 2 ->
                    second = rest;
                    if
                    :: second == END -> goto again
                    :: else
                    fi;
                    rest = next[second]
                :: else
                fi;
                if
                :: atomic { SAME -> top = rest; RAISE; take(first);
                            if
                            :: second != END -> take(second)
                            :: else
                            fi }
                    break
                :: atomic { !(SAME) -> skip }
                fi;
again:          skip
            od;
            /* release: chain first -> second, push in one exchange, then the credit */
            atomic {
                held[first] = false;
                if
                :: second != END -> held[second] = false
                :: else
                fi
            }
            if
            :: second != END -> next[first] = second; rest = second
            :: else -> rest = first
            fi;
            do
            :: true ->
                d_step { old_top = top; old_tag = tag }
                next[rest] = old_top;
                if
                :: atomic { SAME -> top = first; RAISE }
                    break
                :: atomic { !(SAME) -> skip }
                fi
            od;
            atomic { credit = credit + n }
        :: else
        fi
    :: else -> break
    od;
    n_finished++
}

/* When all are done every page is on the stack once. */
proctype audit() {
    byte n = 0, page;
    n_finished == N_THREADS;
    d_step {
        page = top;
        do
        :: page != END && n <= N_PAGES -> n++; page = next[page]
        :: else -> break
        od;
        assert(n == N_PAGES && credit == N_PAGES)
    }
}

init {
    atomic {
        next[0] = 1;
        next[1] = 2;
        next[2] = END;
        byte i = 0;
        do
        :: i < N_THREADS -> run worker(); i++
        :: else -> break
        od;
        run audit()
    }
}
