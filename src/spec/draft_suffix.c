/* Suffix drafts: guesses what most often followed the longest suffix of the sequence that
 * occurred before, in the sequence itself or in recent outputs of its namespace (no other
 * namespace's, as for prefixes). Of the two guesses it takes the one with more expected
 * correct tokens.
 *
 * Memory is bounded: one suffix tree of SUFFIX_NODES nodes, the last SUFFIX_OWN tokens of
 * each prompt, and the last outputs that fit into SUFFIX_TEXTS tokens. When nodes run out
 * the oldest outputs are dropped; a sequence that still finds none has no tree of its
 * own. A step indexes at most SUFFIX_WORK tokens; a long prompt gives no guesses until it
 * is indexed. Source: Oliaro et al. 2024, "SuffixDecoding". */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/namespace.h"
#include "spec/draft.h"

/* A suffix tree counts which tokens followed which in several texts: a trie of all runs
 * of up to `depth` tokens, with the number of times that each occurs.
 *
 * The runs of a text lie under a root, which several texts may share. Texts grow at their
 * end, and can be removed again. Nodes come from a slab of fixed size: nothing is
 * allocated after open, and when the slab is full the rest of a text is left out. Owner:
 * one thread. Invariant: a node's count is over 0, and at least the sum of its children's
 * counts. */

quire_err suffix_tree_open(int32_t max_nodes, int32_t depth, suffix_tree **out) {
    suffix_tree *t = mem_new(1, sizeof *t);
    TRY(mem_check(t));
    uint32_t n_buckets = (uint32_t)size_power_of_two((size_t)max_nodes);
    t->nodes = mem_new((size_t)max_nodes, sizeof *t->nodes);
    t->buckets = mem_new(n_buckets, sizeof *t->buckets);
    if (!t->nodes || !t->buckets) {
        suffix_tree_close(t);
        return QUIRE_NO_MEMORY;
    }
    t->mask = n_buckets - 1;
    t->max_nodes = max_nodes;
    t->depth = depth;
    t->free = t->dropped = SUFFIX_NONE;
    for (uint32_t i = 0; i < n_buckets; i++) {
        t->buckets[i] = SUFFIX_NONE;
    }
    *out = t;
    return QUIRE_OK;
}

void suffix_tree_close(suffix_tree *t) {
    if (t) {
        mem_free(t->nodes);
        mem_free(t->buckets);
        mem_free(t);
    }
}

/* ---- nodes ---- */

static int32_t *suffix_tree_bucket_of(const suffix_tree *t, int32_t parent, int32_t token) {
    uint64_t h = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return &t->buckets[(uint32_t)(h >> 32) & t->mask];
}

static int32_t find_child(const suffix_tree *t, int32_t parent, int32_t token) {
    int32_t i = *suffix_tree_bucket_of(t, parent, token);
    while (i != SUFFIX_NONE && (t->nodes[i].parent != parent || t->nodes[i].token != token)) {
        i = t->nodes[i].bucket;
    }
    return i;
}

static void leave_bucket(suffix_tree *t, int32_t i) {
    int32_t *at = suffix_tree_bucket_of(t, t->nodes[i].parent, t->nodes[i].token);
    while (*at != i) {
        at = &t->nodes[*at].bucket;
    }
    *at = t->nodes[i].bucket;
}

/* Takes one node out of the dropped list, and puts its children there. */
static int32_t take_dropped(suffix_tree *t) {
    int32_t i = t->dropped;
    t->dropped = t->nodes[i].bucket;
    for (int32_t c = t->nodes[i].child, next; c != SUFFIX_NONE; c = next) {
        next = t->nodes[c].next;
        leave_bucket(t, c);
        t->nodes[c].bucket = t->dropped;
        t->dropped = c;
    }
    return i;
}

static int32_t new_node(suffix_tree *t, int32_t parent, int32_t token) {
    int32_t i = SUFFIX_NONE;
    if (t->free != SUFFIX_NONE) {
        i = t->free;
        t->free = t->nodes[i].bucket;
        t->n_free--;
    } else if (t->n_used < t->max_nodes) {
        i = t->n_used++;
    } else if (t->dropped != SUFFIX_NONE) {
        i = take_dropped(t);
    }
    if (i == SUFFIX_NONE) {
        return i;
    }
    suffix_node *n = &t->nodes[i];
    *n = (suffix_node){.parent = parent, .token = token, .child = SUFFIX_NONE, .next = SUFFIX_NONE};
    n->previous = n->best = SUFFIX_NONE;
    if (parent != SUFFIX_NONE) {
        suffix_node *p = &t->nodes[parent];
        n->depth = (uint8_t)(p->depth + 1);
        n->next = p->child;
        if (p->child != SUFFIX_NONE) {
            t->nodes[p->child].previous = i;
        }
        p->child = i;
        int32_t *bucket = suffix_tree_bucket_of(t, parent, token);
        n->bucket = *bucket;
        *bucket = i;
    }
    return i;
}

/* Frees a child whose count is 0, and which has no children. */
static void free_node(suffix_tree *t, int32_t i) {
    suffix_node *n = &t->nodes[i], *p = &t->nodes[n->parent];
    leave_bucket(t, i);
    if (n->previous != SUFFIX_NONE) {
        t->nodes[n->previous].next = n->next;
    } else {
        p->child = n->next;
    }
    if (n->next != SUFFIX_NONE) {
        t->nodes[n->next].previous = n->previous;
    }
    if (p->best == i) {
        p->best = p->child;
        /* the best child of a root is never used */
        for (int32_t c = p->child; c != SUFFIX_NONE && p->parent != SUFFIX_NONE; c = t->nodes[c].next) {
            p->best = t->nodes[c].count > t->nodes[p->best].count ? c : p->best;
        }
    }
    n->bucket = t->free;
    t->free = i;
    t->n_free++;
}

/* Adds 1 to the count of a child, and creates it if needed. */
static int32_t count_child(suffix_tree *t, int32_t parent, int32_t token) {
    int32_t i = find_child(t, parent, token);
    i = i != SUFFIX_NONE ? i : new_node(t, parent, token);
    if (i != SUFFIX_NONE) {
        t->nodes[i].count++;
        suffix_node *p = &t->nodes[parent];
        if (p->best == SUFFIX_NONE || t->nodes[i].count >= t->nodes[p->best].count) {
            p->best = i;
        }
    }
    return i;
}

/* Whether there are nodes for one more token of a text. Frees dropped nodes first. */
static bool suffix_tree_has_room(suffix_tree *t) {
    while (t->max_nodes - t->n_used + t->n_free < t->depth && t->dropped != SUFFIX_NONE) {
        int32_t i = take_dropped(t);
        t->nodes[i].bucket = t->free;
        t->free = i;
        t->n_free++;
    }
    return t->max_nodes - t->n_used + t->n_free >= t->depth;
}

int32_t suffix_tree_root(suffix_tree *t) {
    return new_node(t, SUFFIX_NONE, 0);
}

void suffix_tree_drop(suffix_tree *t, int32_t root) {
    assert(root >= 0);
    t->nodes[root].bucket = t->dropped;
    t->dropped = root;
}

/* ---- texts ---- */

void suffix_cursor_init(suffix_cursor *c, int32_t root) {
    c->root = root;
    c->n_active = 0;
}

bool suffix_tree_add(suffix_tree *t, suffix_cursor *c, int32_t token) {
    int32_t before = c->n_active < t->depth ? c->n_active : t->depth - 1;
    int32_t parent = c->root;
    for (int32_t length = 0; length <= before; length++) {
        int32_t child = count_child(t, parent, token);
        if (child == SUFFIX_NONE) {
            c->n_active = length;
            return false;
        }
        parent = c->active[length]; /* node of the run of the same length before this token */
        c->active[length] = child;
    }
    c->n_active = before + 1;
    return true;
}

/* Subtracts 1 from the count of the run of `length` tokens. */
static void take_run(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t length) {
    int32_t path[SUFFIX_MAX_DEPTH], i = root;
    for (int32_t k = 0; k < length; k++) {
        i = path[k] = find_child(t, i, tokens[k]);
    }
    for (int32_t k = length - 1; k >= 0; k--) {
        if (--t->nodes[path[k]].count == 0) {
            free_node(t, path[k]);
        }
    }
}

/* Counts the run of tokens once more; returns how many of them had nodes. */
static int32_t put_run(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t length) {
    int32_t i = root, k = 0;
    while (k < length && (i = count_child(t, i, tokens[k])) != SUFFIX_NONE) {
        k++;
    }
    return k;
}

static int32_t run_length(const suffix_tree *t, int32_t n, int32_t from) {
    return n - from < t->depth ? n - from : t->depth;
}

int32_t suffix_tree_put(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t from) {
    for (; from < n; from++) {
        int32_t length = run_length(t, n, from), put = put_run(t, root, tokens + from, length);
        if (put < length) {
            take_run(t, root, tokens + from, put);
            break;
        }
    }
    return from;
}

void suffix_tree_take(suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n, int32_t end) {
    for (int32_t from = 0; from < end; from++) {
        take_run(t, root, tokens + from, run_length(t, n, from));
    }
}

/* ---- queries ---- */

int32_t suffix_tree_find(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n) {
    int32_t i = root;
    for (int32_t k = 0; k < n && i != SUFFIX_NONE; k++) {
        i = find_child(t, i, tokens[k]);
    }
    return i;
}

int32_t suffix_tree_match(const suffix_tree *t, int32_t root, const int32_t *tokens, int32_t n,
                          int32_t *length) {
    assert(n >= 0);
    /* a suffix of `low` tokens was found, and none of over `high` tokens exists */
    int32_t found = SUFFIX_NONE, low = 0, high = n < t->depth - 1 ? n : t->depth - 1;
    while (low < high) {
        int32_t middle = (low + high + 1) / 2, i = suffix_tree_find(t, root, tokens + n - middle, middle);
        if (i != SUFFIX_NONE && t->nodes[i].child != SUFFIX_NONE) {
            low = middle;
            found = i;
        } else {
            high = middle - 1;
        }
    }
    *length = low;
    return found;
}

/* ---- guesses ---- */

/* A candidate guess: the token of `node`, as a child of node `parent` of the draft
 * tree. */
typedef struct guess {
    double p;
    int32_t node, parent;
} guess;

typedef struct guesser {
    const suffix_tree *t;
    int32_t root;
    const int32_t *tokens; /* [n] the sequence */
    int32_t n, width;
    draft_tree *out;
    int32_t n_open;
    guess open[(DRAFT_MAX + 1) * DRAFT_MAX_WIDTH];
} guesser;

/* Returns the node of the last `length` tokens of the text formed by the sequence, the
 * ancestors of `parent`, and `parent`. */
static int32_t suffix_tree_find_end(const guesser *g, int32_t parent, int32_t length) {
    int32_t run[SUFFIX_MAX_DEPTH], n = g->n;
    for (int32_t i = length - 1; i >= 0; i--) {
        run[i] = parent != DRAFT_ROOT ? g->out->tokens[parent] : g->tokens[--n];
        parent = parent != DRAFT_ROOT ? g->out->parents[parent] : parent;
    }
    return suffix_tree_find(g->t, g->root, run, length);
}

/* Adds, as candidates, the most frequent children of node i, which has probability p and
 * corresponds to `parent`. Of equally frequent children `best` comes first. */
static void open_children(guesser *g, int32_t i, int32_t parent, double p) {
    const suffix_node *nodes = g->t->nodes;
    guess *first = g->open + g->n_open;
    /* the deepest nodes have no children, so continue from half as many tokens */
    if (nodes[i].best == SUFFIX_NONE && nodes[i].depth == g->t->depth && g->t->depth > 1) {
        i = suffix_tree_find_end(g, parent, g->t->depth / 2);
    }
    if (i == SUFFIX_NONE || nodes[i].best == SUFFIX_NONE) {
        return;
    }
    double each = p / (double)nodes[i].count;
    int32_t n = 0;
    first[n++] = (guess){each * (double)nodes[nodes[i].best].count, nodes[i].best, parent};
    for (int32_t c = g->width > 1 ? nodes[i].child : SUFFIX_NONE; c != SUFFIX_NONE; c = nodes[c].next) {
        int32_t at = n;
        while (at > 1 && nodes[c].count > nodes[first[at - 1].node].count) {
            at--;
        }
        if (c == nodes[i].best || at == g->width) {
            continue;
        }
        n = n < g->width ? n + 1 : n;
        for (int32_t k = n - 1; k > at; k--) {
            first[k] = first[k - 1];
        }
        first[at] = (guess){each * (double)nodes[c].count, c, parent};
    }
    g->n_open += n;
}

/* Takes the likeliest guess out; in a tie the one added first. */
static guess suffix_tree_take_likeliest(guesser *g) {
    int32_t best = 0;
    for (int32_t i = 1; i < g->n_open; i++) {
        best = g->open[i].p > g->open[best].p ? i : best;
    }
    guess taken = g->open[best];
    g->n_open--;
    for (int32_t i = best; i < g->n_open; i++) {
        g->open[i] = g->open[i + 1];
    }
    return taken;
}

double suffix_tree_guess(const suffix_tree *t, int32_t root, int32_t i, const int32_t *tokens, int32_t n,
                         const draft_bounds *most, double min_prob, draft_tree *out) {
    guesser g = {.t = t, .root = root, .tokens = tokens, .n = n, .width = most->width, .out = out};
    double score = 0.0;
    if (most->depth > 0) {
        open_children(&g, i, DRAFT_ROOT, 1.0);
    }
    while (out->n < most->nodes && g.n_open > 0) {
        guess next = suffix_tree_take_likeliest(&g);
        if (next.p < min_prob) {
            break;
        }
        score += next.p;
        int32_t at = draft_tree_add(out, next.parent, t->nodes[next.node].token);
        if (out->depths[at] < most->depth) {
            open_children(&g, next.node, at, next.p);
        }
    }
    draft_tree_sort(out);
    return score;
}

#define MAX_NAMESPACES 256
#define MAX_TEXTS      16384
#define MIN_TEXT       2                  /* shorter outputs are not kept */
#define MAX_TEXT       (SUFFIX_TEXTS / 4) /* tokens of one output that are kept */

/* An output that is in the tree: ring[from .. from + n). */
typedef struct text {
    int32_t from, n, namespace;
} text;

typedef struct suffix_drafter {
    drafter head;
    draft_options options;
    suffix_tree *tree;
    kv_namespaces namespaces; /* each has a root in the tree; its number of paths counts its texts */
    text *texts;              /* [MAX_TEXTS] ring buffer of n_texts, the oldest at `first` */
    int32_t first, n_texts, max_texts;
    int32_t *ring; /* [SUFFIX_TEXTS] */
    int32_t end;   /* index in ring of the next output */
} suffix_drafter;

/* ---- recent outputs ---- */

/* Counts one text less in a namespace, and removes it with its last text. */
static void draft_suffix_leave_namespace(suffix_drafter *d, int32_t i) {
    if (--d->namespaces.slots[i].n_paths == 0) {
        suffix_tree_drop(d->tree, d->namespaces.slots[i].root);
        kv_namespaces_remove(&d->namespaces, i);
    }
}

static void drop_oldest(suffix_drafter *d) {
    const text *t = &d->texts[d->first];
    suffix_tree_take(d->tree, d->namespaces.slots[t->namespace].root, d->ring + t->from, t->n, t->n);
    draft_suffix_leave_namespace(d, t->namespace);
    d->first = (d->first + 1) % MAX_TEXTS;
    d->n_texts--;
}

static int32_t find_namespace(const suffix_drafter *d, const draft_seq *s) {
    return kv_namespaces_find(&d->namespaces, NAMESPACE_PLAIN, s->namespace, s->n_namespace);
}

/* Counts one text more in s's namespace, and creates it if needed. NAMESPACE_NONE: all
 * are in use. */
static int32_t draft_suffix_enter_namespace(suffix_drafter *d, const draft_seq *s) {
    int32_t i = find_namespace(d, s), root = SUFFIX_NONE;
    if (i == NAMESPACE_NONE && d->namespaces.n < MAX_NAMESPACES &&
        (root = suffix_tree_root(d->tree)) != SUFFIX_NONE) {
        i = kv_namespaces_add(&d->namespaces, NAMESPACE_PLAIN, s->namespace, s->n_namespace);
        d->namespaces.slots[i].root = root;
    }
    if (i != NAMESPACE_NONE) {
        d->namespaces.slots[i].n_paths++;
    }
    return i;
}

/* Makes room for n tokens in the ring by dropping old outputs. Returns their index. */
static int32_t ring_place(suffix_drafter *d, int32_t n) {
    int32_t from = d->end + n <= SUFFIX_TEXTS ? d->end : 0;
    while (d->n_texts > 0) {
        const text *t = &d->texts[d->first];
        bool overlaps = t->from < from + n && from < t->from + t->n;
        if (!overlaps && (from == d->end || t->from < d->end) && d->n_texts < d->max_texts) {
            break;
        }
        /* when the ring wraps around, drops also outputs after `end`, which are older
         * than those at the start */
        drop_oldest(d);
    }
    return from;
}

/* Keeps the output of an ending sequence. */
static void keep_output(suffix_drafter *d, const draft_seq *s) {
    int32_t n = s->n_known - s->context->n_prompt;
    n = n < MAX_TEXT ? n : MAX_TEXT;
    if (n < MIN_TEXT || d->max_texts == 0) {
        return;
    }
    int32_t from = ring_place(d, n), in = draft_suffix_enter_namespace(d, s);
    while (in == NAMESPACE_NONE && d->n_texts > 0) {
        drop_oldest(d);
        in = draft_suffix_enter_namespace(d, s);
    }
    if (in == NAMESPACE_NONE) {
        return;
    }
    memcpy(d->ring + from, s->tokens + s->context->n_prompt, (size_t)n * sizeof *d->ring);
    int32_t put = 0, root = d->namespaces.slots[in].root;
    while ((put = suffix_tree_put(d->tree, root, d->ring + from, n, put)) < n && d->n_texts > 0) {
        drop_oldest(d); /* the namespace remains, since it already counts the new text */
    }
    if (put < n) {
        suffix_tree_take(d->tree, root, d->ring + from, n, put);
        draft_suffix_leave_namespace(d, in);
        return;
    }
    d->texts[(d->first + d->n_texts++) % MAX_TEXTS] = (text){from, n, in};
    d->end = from + n;
}

/* ---- the sequence's own tree ---- */

static void leave_own(suffix_drafter *d, draft_seq *s) {
    if (s->own.root != SUFFIX_NONE) {
        suffix_tree_drop(d->tree, s->own.root);
        s->own.root = SUFFIX_NONE;
    }
}

/* Adds s's known tokens to its own tree, as far as *work allows. True: all are in. */
static bool index_own(suffix_drafter *d, draft_seq *s, int32_t *work) {
    if (s->own_failed) {
        return true;
    }
    if (s->own.root == SUFFIX_NONE) {
        suffix_cursor_init(&s->own, suffix_tree_root(d->tree));
        s->n_indexed = s->n_known > SUFFIX_OWN ? s->n_known - SUFFIX_OWN : 0;
    }
    for (; s->n_indexed<s->n_known && * work> 0 && s->own.root != SUFFIX_NONE; s->n_indexed++, (*work)--) {
        while (!suffix_tree_has_room(d->tree) && d->n_texts > 0) {
            drop_oldest(d);
        }
        if (!suffix_tree_add(d->tree, &s->own, s->tokens[s->n_indexed])) {
            leave_own(d, s);
        }
    }
    s->own_failed = s->own.root == SUFFIX_NONE;
    return s->own_failed || s->n_indexed == s->n_known;
}

/* ---- guessing ---- */

/* Guesses from the texts under root into an empty draft tree. Returns the expected number
 * of correct tokens. */
static double draft_suffix_guess(const suffix_drafter *d, int32_t root, const draft_seq *s, draft_tree *out) {
    int32_t length = 0, node = root == SUFFIX_NONE
                                   ? SUFFIX_NONE
                                   : suffix_tree_match(d->tree, root, s->tokens, s->n_known, &length);
    if (node == SUFFIX_NONE) {
        return 0.0;
    }
    draft_bounds most = s->wanted;
    double allowed = (double)d->options.suffix_factor * length;
    most.nodes = allowed < most.nodes ? (int32_t)allowed : most.nodes;
    return suffix_tree_guess(d->tree, root, node, s->tokens, s->n_known, &most, d->options.suffix_min_prob,
                             out);
}

static void propose_one(const suffix_drafter *d, draft_seq *s) {
    draft_tree own = {0};
    int32_t in = find_namespace(d, s);
    double own_score = draft_suffix_guess(d, s->own.root, s, &own);
    double score =
        draft_suffix_guess(d, in == NAMESPACE_NONE ? SUFFIX_NONE : d->namespaces.slots[in].root, s, &s->tree);
    if (own_score >= score) {
        s->tree = own;
    }
}

static void draft_suffix_propose(drafter *head, draft_seq *const *seqs, int32_t n) {
    suffix_drafter *d = (suffix_drafter *)head;
    int32_t work = SUFFIX_WORK;
    for (int32_t i = 0; i < n; i++) {
        if (index_own(d, seqs[i], &work)) {
            propose_one(d, seqs[i]);
        }
    }
}

static void draft_suffix_forget(drafter *head, draft_seq *s, bool over) {
    suffix_drafter *d = (suffix_drafter *)head;
    if (over) {
        leave_own(d, s);
        keep_output(d, s);
    }
}

static void suffix_close(drafter *head) {
    suffix_drafter *d = (suffix_drafter *)head;
    suffix_tree_close(d->tree);
    kv_namespaces_close(&d->namespaces);
    mem_free(d->texts);
    mem_free(d->ring);
    mem_free(d);
}

quire_err draft_suffix_open(const draft_options *o, drafter **out) {
    static const draft_ops ops = {
        .propose = draft_suffix_propose, .forget = draft_suffix_forget, .close = suffix_close};
    suffix_drafter *d = mem_new(1, sizeof *d);
    TRY(mem_check(d));
    d->head.ops = &ops;
    d->options = *o;
    d->max_texts = o->suffix_texts < MAX_TEXTS ? o->suffix_texts : MAX_TEXTS;
    d->texts = mem_new(MAX_TEXTS, sizeof *d->texts);
    d->ring = mem_new(SUFFIX_TEXTS, sizeof *d->ring);
    if (!d->texts || !d->ring || kv_namespaces_open(&d->namespaces, MAX_NAMESPACES) != QUIRE_OK ||
        suffix_tree_open(SUFFIX_NODES, o->suffix_depth, &d->tree) != QUIRE_OK) {
        suffix_close(&d->head);
        return QUIRE_NO_MEMORY;
    }
    *out = &d->head;
    return QUIRE_OK;
}
