/* What config.json says of biases, against those that a checkpoint has: a file that lacks
 * those it names would run as another model, and so would one with biases that it says
 * are not there. */
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/left_out.h"

/* A key, and the ends of the tensors' names that it speaks of: some of them must be
 * there, or none. */
typedef struct bias_key {
    const char *key, *ends[6];
} bias_key;

static const bias_key keys[] = {
    {"attention_bias|qkv_bias|use_qkv_bias",
     {".q_proj.bias", ".qkv_proj.bias", ".query_key_value.bias", ".Wqkv.bias", ".kv_a_proj_with_mqa.bias"}},
    {"attention_out_bias", {".o_proj.bias"}},
    {"mlp_bias", {".up_proj.bias", ".gate_up_proj.bias", ".Wi.bias"}},
    {"use_bias|enable_bias|bias",
     {".q_proj.bias", ".query_key_value.bias", ".wqkv.bias", ".mixer.in_proj.bias"}},
    {"lm_head_bias", {"lm_head.bias"}},
};

/* AutoGPTQ writes a bias of zeros for every layer. */
static bool is_zeros(const tensor_view *t) {
    const uint8_t *bytes = t->data;
    size_t i = 0;
    while (i < t->n_bytes && bytes[i] == 0) {
        i++;
    }
    return i == t->n_bytes;
}

/* The first tensor of the text model with one of the ends, or NULL. zeros: those of zeros
 * are meant too. */
static const char *find_end(const model_file *f, const char *root, const bias_key *k, bool zeros) {
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const char *name = model_file_tensor(f, i)->name;
        bool is_meant = (text_prefix(root) == 0 || strncmp(name, root, strlen(root)) == 0) &&
                        (zeros || !is_zeros(model_file_tensor(f, i)));
        for (size_t e = 0; is_meant && e < sizeof k->ends / sizeof *k->ends && k->ends[e] != NULL; e++) {
            if (str_ends(str_of(name), k->ends[e])) {
                return name;
            }
        }
    }
    return NULL;
}

/* Classes whose configuration has no attention_bias: it means nothing there. */
static bool has_no_attention_bias(const config *c) {
    static const char *const classes[] = {"Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "MistralForCausalLM",
                                          "Ministral3ForCausalLM", "MixtralForCausalLM"};
    bool found = false;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        found = found || config_is(c, classes[i]);
    }
    return found;
}

quire_err biases_check(const config *c, const arch_names *names) {
    for (size_t i = 0; !c->is_gguf && i < sizeof keys / sizeof *keys; i++) {
        bool says = false;
        const char *key = i == 0 && has_no_attention_bias(c) ? "qkv_bias|use_qkv_bias" : keys[i].key;
        if (!config_has(c, NULL, key)) {
            continue;
        }
        TRY(config_bool(c, NULL, key, &says));
        const char *found = find_end(c->f, loader_root(c->f, names), &keys[i], says);
        char what[240];
        (void)snprintf(what, sizeof what,
                       says ? "true, and no tensor named ..%.60s is in the file: it is incomplete"
                            : "false, and the file has %.160s",
                       says            ? keys[i].ends[0]
                       : found != NULL ? found
                                       : "");
        TRY(says == (found != NULL) ? QUIRE_OK : config_bad_at(c, NULL, key, what));
    }
    return QUIRE_OK;
}
