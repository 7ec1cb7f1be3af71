#include "model/architectures.h"

static const arch *const all[] = {
    &arch_llama,       &arch_mistral,      &arch_mixtral,      &arch_qwen2,       &arch_qwen2_moe,
    &arch_qwen3,       &arch_qwen3_moe,    &arch_gemma,        &arch_gemma2,      &arch_gemma3,
    &arch_phi,         &arch_phi3,         &arch_phimoe,       &arch_gpt2,        &arch_gpt_bigcode,
    &arch_gptj,        &arch_gpt_neox,     &arch_opt,          &arch_starcoder2,  &arch_falcon,
    &arch_bloom,       &arch_mpt,          &arch_cohere,       &arch_cohere2,     &arch_glm,
    &arch_glm4,        &arch_glm4_moe,     &arch_olmo,         &arch_olmo2,       &arch_olmoe,
    &arch_granite,     &arch_granite_moe,  &arch_nemotron,     &arch_stablelm,    &arch_smollm3,
    &arch_ernie4_5,    &arch_ernie4_5_moe, &arch_exaone4,      &arch_hunyuan,     &arch_hunyuan_moe,
    &arch_seed_oss,    &arch_minimax_m2,   &arch_gpt_oss,      &arch_llama4,      &arch_gemma4,
    &arch_bert,        &arch_roberta,      &arch_nomic_bert,   &arch_modernbert,  &arch_gemma_embedding,
    &arch_arcee,       &arch_cwm,          &arch_dots1,        &arch_solar_open,  &arch_hyperclovax,
    &arch_qwen2_vl,    &arch_qwen3_vl,     &arch_qwen3_vl_moe, &arch_glm4v,       &arch_glm4v_moe,
    &arch_iquestcoder, &arch_internlm2,    &arch_helium,       &arch_jais2,       &arch_vaultgemma,
    &arch_exaone,      &arch_minicpm,      &arch_flex_olmo,    &arch_nanochat,    &arch_bitnet,
    &arch_ernie4_5_vl, &arch_step,         &arch_muse_glimmer, &arch_gemma3n,     &arch_apertus,
    &arch_exaone_moe,  &arch_hy_v3,        &arch_mellum,       &arch_kolibri,     &arch_flint,
    &arch_granite_swa, &arch_cohere2_moe,  &arch_north,        &arch_laguna,      &arch_granite_moe_w,
    &arch_afmoe,       &arch_mimo,         &arch_deepseek2,    &arch_deepseek_v2, &arch_glm4_moe_lite,
    &arch_youtu,       &arch_mistral4,     &arch_minicpm3,     &arch_axk1,        &arch_lfm2,
    &arch_lfm2_moe,    &arch_qwen3_next,   &arch_qwen3_5,      &arch_qwen3_5_moe, &arch_minimax,
    &arch_lfm3,        &arch_olmo_hybrid,  &arch_lara_mini,    &arch_kimi_linear, &arch_ling3,
    &arch_deepseek32,  &arch_glm_dsa,      &arch_longcat,      &arch_mamba,       &arch_mamba2,
    &arch_nemotron_h,  &arch_granite_h,    &arch_bamba,        &arch_falcon_h1,   &arch_jamba,
    &arch_zamba2,      &arch_griffin,      &arch_beam,         &arch_muse_spark,  &arch_mistral_large4,
    &arch_minimax_m3,  &arch_glm5_next,    &arch_qwen4,        &arch_axk2};

/* The k-th name of an architecture in a format; NULL after the last. */
static const char *name_at(const arch *a, model_format format, int k) {
    return k < ARCH_MAX_NAMES ? (format == MODEL_GGUF ? a->gguf : a->hf)[k] : NULL;
}

const arch *arch_at(size_t i) {
    return i < sizeof all / sizeof *all ? all[i] : NULL;
}

const arch *arch_find(model_format format, str name, nearest *similar) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *known;
        for (int k = 0; (known = name_at(all[i], format, k)) != NULL; k++) {
            if (str_is(name, known)) {
                return all[i];
            }
            nearest_offer(similar, str_of(known));
        }
    }
    return NULL;
}

/* ---- known but refused ---- */

static const refused_arch refused_table[] = {
    {"DeepseekV4ForCausalLM", "deepseek4",
     "compressed keys beside windows, and hyper-connections of four streams"},
    {"DiffLlamaForCausalLM", NULL, "attention as the difference of two softmaxes over split values"},
    {"DogeForCausalLM", NULL, "a mask that each key makes of its value and adds to the scores"},
    {"DoryForCausalLM", NULL, "a normalised transformer whose middle layers run several times"},
    {"Dots3NoteForCausalLM", NULL,
     "latent attention of two sizes, with windows in some layers and chosen keys in others"},
    {"HYV4ForCausalLM", NULL, "hyper-connections of four streams around latent attention with sinks"},
    {"HrmTextForCausalLM", "hrm_text", "two stacks of layers that run in nested cycles"},
    {"InklingForConditionalGeneration", NULL,
     "relative positions as logits of their own, and short convolutions after every block"},
    {"RwkvForCausalLM", NULL, "RWKV's recurrence over weighted values"},
    {"ZayaForCausalLM", NULL, "convolved queries and keys, and values of which half come a token late"},
};

_Static_assert(sizeof refused_table / sizeof *refused_table <= MOST_REFUSED,
               "more names are refused than may be");

const refused_arch *refused_at(size_t i) {
    return i < sizeof refused_table / sizeof *refused_table ? &refused_table[i] : NULL;
}

const char *refused_reason(model_format format, str name) {
    for (size_t i = 0; i < sizeof refused_table / sizeof *refused_table; i++) {
        const char *known = format == MODEL_GGUF ? refused_table[i].gguf : refused_table[i].hf;
        if (known != NULL && str_is(name, known)) {
            return refused_table[i].reason;
        }
    }
    return NULL;
}
