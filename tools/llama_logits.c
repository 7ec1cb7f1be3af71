/* llama-logits MODEL CONTEXT THREADS < IDS > LOGITS: llama.cpp's logits, computed with
 * its defaults, for tests/e2e/test_llama_quants.py. IDS are int32, each CONTEXT of
 * them a sequence of its own; LOGITS are float32, a row of the vocabulary for each.
 * Compiled by llama_cpp.sh. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

/* Decodes one sequence and writes its logits; 0: done. */
static int run_sequence(struct llama_context *c, const llama_token *ids, int n, int n_vocab) {
    struct llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) {
        b.token[i] = ids[i];
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    llama_memory_clear(llama_get_memory(c), true);
    int failed = llama_decode(c, b);
    for (int i = 0; i < n && !failed; i++) {
        failed =
            fwrite(llama_get_logits_ith(c, i), sizeof(float), (size_t)n_vocab, stdout) != (size_t)n_vocab;
    }
    llama_batch_free(b);
    return failed;
}

int main(int argc, char **argv) {
    int n = argc == 4 ? atoi(argv[2]) : 0, n_threads = argc == 4 ? atoi(argv[3]) : 0, failed = 0;
    if (n < 1 || n_threads < 1) {
        fprintf(stderr, "usage: llama-logits MODEL CONTEXT THREADS < IDS > LOGITS\n");
        return 2;
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params options = llama_context_default_params();
    options.n_ctx = options.n_batch = (uint32_t)n;
    options.n_threads = options.n_threads_batch = n_threads;
    struct llama_context *c = m != NULL ? llama_init_from_model(m, options) : NULL;
    llama_token *ids = malloc((size_t)n * sizeof *ids);
    if (c == NULL || ids == NULL) {
        return 1;
    }
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    while (!failed && fread(ids, sizeof *ids, (size_t)n, stdin) == (size_t)n) {
        failed = run_sequence(c, ids, n, n_vocab);
    }
    free(ids);
    llama_free(c);
    llama_model_free(m);
    return failed != 0;
}
