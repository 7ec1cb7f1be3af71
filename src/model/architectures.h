/* The architectures that this build runs. */
#ifndef MODEL_ARCHITECTURES_H
#define MODEL_ARCHITECTURES_H

#include <stddef.h>

#include "base/str.h"
#include "file/model_file.h"
#include "model/arch.h"

extern const arch arch_llama, arch_mistral, arch_mixtral, arch_arcee, arch_cwm;
extern const arch arch_iquestcoder, arch_exaone, arch_minicpm, arch_internlm2, arch_helium, arch_jais2,
    arch_vaultgemma;
extern const arch arch_deepseek2, arch_deepseek_v2, arch_glm4_moe_lite, arch_youtu, arch_mistral4,
    arch_minicpm3, arch_mistral_large4, arch_minimax_m3, arch_glm5_next, arch_qwen4, arch_axk1, arch_axk2,
    arch_deepseek32, arch_glm_dsa, arch_longcat;
extern const arch arch_qwen2, arch_qwen2_moe, arch_qwen3, arch_qwen3_moe, arch_qwen2_vl, arch_qwen3_vl,
    arch_qwen3_vl_moe;
extern const arch arch_gemma, arch_gemma2, arch_gemma3;
extern const arch arch_phi, arch_phi3, arch_phimoe;
extern const arch arch_gpt2, arch_gpt_bigcode, arch_gptj, arch_gpt_neox, arch_opt, arch_starcoder2;
extern const arch arch_falcon, arch_bloom, arch_mpt;
extern const arch arch_cohere, arch_cohere2, arch_glm, arch_glm4, arch_glm4_moe, arch_glm4v, arch_glm4v_moe,
    arch_dots1, arch_solar_open;
extern const arch arch_olmo, arch_olmo2, arch_olmoe, arch_granite, arch_granite_moe, arch_hyperclovax;
extern const arch arch_nemotron, arch_stablelm, arch_smollm3;
extern const arch arch_ernie4_5, arch_ernie4_5_moe, arch_exaone4, arch_hunyuan, arch_hunyuan_moe,
    arch_seed_oss, arch_minimax_m2;
extern const arch arch_apertus, arch_exaone_moe, arch_hy_v3, arch_granite_swa, arch_granite_moe_w,
    arch_cohere2_moe, arch_north, arch_laguna, arch_mellum, arch_afmoe, arch_kolibri, arch_flint, arch_mimo,
    arch_beam;
extern const arch arch_gpt_oss, arch_llama4, arch_gemma4;
extern const arch arch_flex_olmo, arch_nanochat, arch_bitnet, arch_ernie4_5_vl, arch_step, arch_muse_glimmer,
    arch_gemma3n, arch_muse_spark;
extern const arch arch_lfm2, arch_lfm2_moe;
extern const arch arch_qwen3_next, arch_qwen3_5, arch_qwen3_5_moe;
extern const arch arch_minimax, arch_lfm3, arch_olmo_hybrid, arch_lara_mini, arch_kimi_linear, arch_ling3;
extern const arch arch_mamba, arch_mamba2, arch_nemotron_h, arch_granite_h, arch_bamba, arch_falcon_h1,
    arch_jamba, arch_zamba2, arch_griffin;
extern const arch arch_bert, arch_roberta, arch_nomic_bert, arch_modernbert, arch_gemma_embedding;

/* Weight names that several families share. */
extern const arch_names mixtral_names;

/* ---- known but refused ---- */

/* Architectures that are recognised but refused, because each needs a mechanism that is
 * not implemented. docs/models.md has the same table. */

#define MOST_REFUSED 18

typedef struct refused_arch {
    const char *hf, *gguf; /* class in config.json; general.architecture, or NULL */
    const char *reason;    /* the missing mechanism: "hyper-connections of four streams" */
} refused_arch;

/* The i-th entry, or NULL after the last. */
const refused_arch *refused_at(size_t i);
/* Why an architecture is refused; NULL: it is not. */
const char *refused_reason(model_format format, str name);

#endif
