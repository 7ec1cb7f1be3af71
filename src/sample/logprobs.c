#include "sample/logprobs.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

double logprobs_normalizer(const float *logits, int32_t n_vocab) {
    assert(n_vocab > 0);
    float max = -INFINITY;
    double sum = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    if (max == -INFINITY) {
        return -INFINITY;
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i] - (double)max);
    }
    return (double)max + log(sum);
}

token_logprob logprobs_of(const float *logits, int32_t n_vocab, double normalizer, int32_t id) {
    assert(id >= 0 && id < n_vocab);
    int32_t rank = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        rank += logits[i] >= logits[id];
    }
    return (token_logprob){.id = id, .rank = rank, .logprob = (float)((double)logits[id] - normalizer)};
}

/* Whether a is less likely than b, or equally likely with a higher id. logprob still
 * holds the logit here. */
static bool ranks_after(const token_logprob *a, const token_logprob *b) {
    return a->logprob != b->logprob ? a->logprob < b->logprob : a->id > b->id;
}

/* Restores the heap of n below entry i; its top is the least likely. */
static void logprobs_sift(token_logprob *heap, int32_t n, int32_t i) {
    token_logprob moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_after(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!ranks_after(&heap[child], &moved)) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Sets rank: how many logits are at least as large. Entries are sorted, best first. */
static void rank_all(const float *logits, int32_t n_vocab, int32_t n, token_logprob *out) {
    for (int32_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] >= out[n - 1].logprob)) {
            continue;
        }
        int32_t low = 0, high = n - 1; /* finds the first entry that is not above this logit */
        while (low < high) {
            int32_t mid = low + (high - low) / 2;
            if (logits[i] >= out[mid].logprob) {
                high = mid;
            } else {
                low = mid + 1;
            }
        }
        out[low].rank++;
    }
    for (int32_t i = 1; i < n; i++) {
        out[i].rank += out[i - 1].rank;
    }
    for (int32_t i = n - 2; i >= 0; i--) { /* equal entries were counted at the first of them */
        out[i].rank = out[i].logprob == out[i + 1].logprob ? out[i + 1].rank : out[i].rank;
    }
}

void logprobs_top(const float *logits, int32_t n_vocab, double normalizer, int32_t n, token_logprob *out) {
    assert(n >= 0 && n <= n_vocab);
    if (n < 1) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        out[i] = (token_logprob){.id = i, .logprob = logits[i]};
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--) {
        logprobs_sift(out, n, i);
    }
    for (int32_t i = n; i < n_vocab; i++) {
        token_logprob next = {.id = i, .logprob = logits[i]};
        if (ranks_after(&out[0], &next)) {
            out[0] = next;
            logprobs_sift(out, n, 0);
        }
    }
    for (int32_t end = n - 1; end > 0; end--) { /* moves the last entry of the heap to its end */
        token_logprob last = out[0];
        out[0] = out[end];
        out[end] = last;
        logprobs_sift(out, end, 0);
    }
    rank_all(logits, n_vocab, n, out);
    for (int32_t i = 0; i < n; i++) {
        out[i].logprob = (float)((double)out[i].logprob - normalizer);
    }
}

void logprobs_report(const float *logits, int32_t n_vocab, int32_t token, const sampling_params *p,
                     int32_t width, token_logprob *out) {
    assert(token >= 0 && token < n_vocab && width >= 1 + sampling_n_scored(p));
    double normalizer = logprobs_normalizer(logits, n_vocab);
    int32_t n_scored = sampling_n_scored(p);
    out[0] = logprobs_of(logits, n_vocab, normalizer, token);
    logprobs_top(logits, n_vocab, normalizer, width - 1 - n_scored, out + 1);
    for (int32_t i = 0; i < n_scored; i++) {
        int32_t id = p->lists->scored[i];
        out[width - n_scored + i] =
            (token_logprob){.id = id, .logprob = (float)((double)logits[id] - normalizer)};
    }
}
