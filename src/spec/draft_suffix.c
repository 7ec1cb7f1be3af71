/* Suffix drafts: guesses what most often followed the longest suffix of the sequence that
 * occurred before, in the sequence itself or in recent outputs of its namespace (prefixes
 * are shared within a namespace only, and so are these). It takes the guess with the
 * larger expected number of right tokens.
 *
 * Memory is bounded: one suffix tree of SUFFIX_NODES nodes, the last SUFFIX_OWN tokens of
 * each prompt, and the last outputs that fit into SUFFIX_TEXTS tokens. When nodes run out
 * the oldest outputs are dropped; a sequence that still finds none has no tree of its
 * own. A step indexes at most SUFFIX_WORK tokens; a long prompt gives no guesses until it
 * is indexed. Source: Oliaro et al. 2024, "SuffixDecoding". */
#include "spec/draft.h"

#include <string.h>

#include "base/mem.h"
#include "kv/namespace.h"

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
    kv_namespaces namespaces; /* each with its root in the tree, and with as many paths as it has texts */
    text *texts;              /* [MAX_TEXTS] a queue: the oldest at first */
    int32_t first, n_texts, max_texts;
    int32_t *ring; /* [SUFFIX_TEXTS] */
    int32_t end;   /* the index for the next output */
} suffix_drafter;

/* ---- recent outputs ---- */

/* Uncounts a text of a namespace; the namespace ends with its last text. */
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

/* Counts one more text in s's namespace, which is created if needed; NAMESPACE_NONE if
 * all are in use. */
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

/* Finds n free tokens in the ring, and drops the oldest outputs for them. */
static int32_t ring_place(suffix_drafter *d, int32_t n) {
    int32_t from = d->end + n <= SUFFIX_TEXTS ? d->end : 0;
    while (d->n_texts > 0) {
        const text *t = &d->texts[d->first];
        bool overlaps = t->from < from + n && from < t->from + t->n;
        if (!overlaps && (from == d->end || t->from < d->end) && d->n_texts < d->max_texts) {
            break;
        }
        /* also one after the end when the ring wraps around: it is older than those at
         * the start */
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
        drop_oldest(d); /* the namespace stays: it counts the new text already */
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

/* Adds s's known tokens, as far as *work allows; true when all are in. */
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

/* Guesses from the tree under root, into an empty draft tree; returns the expected number
 * of right tokens. */
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
