"""Quantised checkpoints as they are published: settings, names, types and layout of tensors of well-known repositories, at reduced width with
seeded values. Each opens, has the logits of the same weights as floats, answers under its automatic settings, and packed likewise."""
import pytest

from test_quant_methods import EXPERTS, FF, HEADS, WIDTH, Model, awq, bnb, f4, fp8, gpt_oss, gptq, int8, int_packed, logits, np, nvfp4, run

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False,
         "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_type": "llama3"}}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32, "max_window_layers": 1}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": WIDTH // HEADS, "use_sliding_window": False, "sliding_window": None, "attention_bias": False}
QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": WIDTH // HEADS, "num_experts": EXPERTS, "num_experts_per_tok": 2,
             "moe_intermediate_size": FF, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "first_k_dense_replace": 1, "hidden_act": "silu",
            "num_hidden_layers": 2, "num_key_value_heads": HEADS, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
            "moe_intermediate_size": FF, "moe_layer_freq": 1, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "ep_size": 1, "rope_theta": 10000,
            "num_nextn_predict_layers": 0, "pretraining_tp": 1, "aux_loss_alpha": 0.001, "seq_aux": True, "use_cache": True}
PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "rope_theta": 10000.0, "pad_token_id": 0, "sliding_window": None}


def auto_gptq(**settings):
    return {"batch_size": 1, "bits": 4, "block_name_to_quantize": None, "cache_block_outputs": True, "damp_percent": 0.01, "dataset": None, "exllama_config": {"version": 1},
            "group_size": 128, "max_input_length": None, "model_seqlen": None, "module_name_preceding_first_block": None, "modules_in_block_to_quantize": None,
            "pad_token_id": None, "quant_method": "gptq", "sym": True, "tokenizer": None, "true_sequential": True, "use_cuda_fp16": False, "use_exllama": True, **settings}


def red_hat(form, ignore=("lm_head",), inputs=None, **weights):
    """config.json as llm-compressor writes it."""
    return {"config_groups": {"group_0": {"input_activations": inputs, "output_activations": None, "targets": ["Linear"], "weights": {
                "actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "num_bits": 8, "observer": "minmax", "observer_kwargs": {},
                "strategy": "channel", "symmetric": True, "type": "int", **weights}}},
            "format": form, "global_compression_ratio": 1.5, "ignore": list(ignore), "kv_cache_scheme": None, "quant_method": "compressed-tensors",
            "quantization_status": "compressed"}


def inputs(**settings):
    return {"actorder": None, "block_structure": None, "dynamic": True, "group_size": None, "num_bits": 8, "observer": None, "observer_kwargs": {},
            "strategy": "token", "symmetric": True, "type": "int", **settings}


def modelopt(algorithm):
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head", "*router", "*self_attn*"], "producer": {"name": "modelopt", "version": "0.35.0"}}


def with_zero_bias(make):
    """Old AutoGPTQ writes a bias of zeros beside every matrix, whether the model has one or not."""
    def made(rng, n_out, n_in):
        tensors, weights = make(rng, n_out, n_in)
        return tensors | {".bias": ("F16", np.zeros(n_out))}, weights
    return made


def with_bound(make):
    def made(rng, n_out, n_in):
        tensors, weights = make(rng, n_out, n_in)
        return tensors | {".input_scale_ub": ("F32", np.array([1200.0]))}, weights
    return made


def dense(make, settings, config, bias=False, fused=False, sixteen=()):
    m = Model((make, settings), **config)
    matrix = lambda name, n_out, n_in: (m.sixteen if name.rpartition(".")[2] in sixteen else m.linear)(name, n_out, n_in)
    p = m.outside((lambda name, n_out, n_in: matrix(name, n_out, n_in) if name.endswith("o_proj") else None) if fused else matrix)
    if "Qwen3" in config["architectures"][0]:
        for norm in ("q_norm", "k_norm"):
            m.plain(f"{p}self_attn.{norm}.weight", WIDTH // HEADS)
    for name, n in (("q_proj", WIDTH), ("k_proj", WIDTH // 2), ("v_proj", WIDTH // 2)) if bias else ():
        m.plain(f"{p}self_attn.{name}.bias", n)
    if fused:
        matrix(p + "self_attn.qkv_proj", 2 * WIDTH, WIDTH)
    if "num_experts" in config:
        m.sixteen(p + "mlp.gate", EXPERTS, WIDTH)
    fed = [f"experts.{e}." for e in range(EXPERTS)] if "num_experts" in config else [""]
    for prefix in fed:
        for name, n_out, n_in in (("gate_up_proj", 2 * FF, WIDTH), ("down_proj", WIDTH, FF)) if fused else (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
            matrix(f"{p}mlp.{prefix}{name}", n_out, n_in)
    return m


def deepseek(make, settings, only_experts=False, **config):
    """Latent attention, a dense layer, and one of experts beside a shared one."""
    m = Model((make, settings), **DEEPSEEK | config)
    m.outside(lambda name, n_out, n_in: None)
    matrix = m.sixteen if only_experts else m.linear
    for p in ("model.layers.0.", "model.layers.1."):
        for norm in ("input_layernorm", "post_attention_layernorm") if p.startswith("model.layers.1") else ():
            m.plain(f"{p}{norm}.weight", WIDTH)
        a, heads = p + "self_attn.", HEADS
        matrix(a + "q_a_proj", 64, WIDTH)
        m.plain(a + "q_a_layernorm.weight", 64)
        matrix(a + "q_b_proj", heads * 48, 64)
        matrix(a + "kv_a_proj_with_mqa", 80, WIDTH)
        m.plain(a + "kv_a_layernorm.weight", 64)
        matrix(a + "kv_b_proj", heads * 64, 64)
        matrix(a + "o_proj", WIDTH, heads * 32)
    m.sixteen("model.layers.1.mlp.gate", EXPERTS, WIDTH)
    m.plain("model.layers.1.mlp.gate.e_score_correction_bias", EXPERTS)
    fed = [("model.layers.0.mlp.", matrix), ("model.layers.1.mlp.shared_experts.", matrix)]
    for prefix, write in fed + [(f"model.layers.1.mlp.experts.{e}.", m.linear) for e in range(EXPERTS)]:
        for name, n_out, n_in in (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
            write(prefix + name, n_out, n_in)
    return m


def gpt_oss_modules(make, settings):
    """gpt-oss as unsloth's patches cut it for bitsandbytes: each expert's matrices are modules, the router is one in another."""
    m = gpt_oss()
    m.make, m.quantisation = make, settings
    p = "model.layers.0.mlp."
    for end in ("weight", "bias"):
        m.stored[f"{p}router.linear.{end}"] = m.stored.pop(f"{p}router.{end}")
    for name, n_out, n_in in (("gate_up_proj", 2 * FF, WIDTH), ("down_proj", WIDTH, FF)):
        biases = m.stored.pop(f"{p}experts.{name}_bias")[1]
        for end in ("blocks", "scales"):
            del m.stored[f"{p}experts.{name}_{end}"]
        made = [m.make(m.rng, n_out, n_in) for _ in range(EXPERTS)]
        for e, (tensors, _) in enumerate(made):
            m.stored |= {f"{p}experts.{name}s.{e}{suffix}": tensor for suffix, tensor in tensors.items()}
            m.stored[f"{p}experts.{name}s.{e}.bias"] = "F16", biases[e]
        m.floats[f"{p}experts.{name}"] = "F32", np.stack([weights.T for _, weights in made])
    return m


def modelopt_stacks(m):
    """All experts' matrices made at once, and stored [inputs, outputs] each: codes and scales of NVFP4 are turned like the floats, one scale is for all of FP8."""
    [p] = {name.partition("experts.")[0] for name in m.floats if "experts." in name}
    m.stored = {name: tensor for name, tensor in m.stored.items() if not name.startswith(p + "experts.") or name.endswith("_bias")}
    for name, n_out, n_in in (("gate_up_proj", 2 * FF, WIDTH), ("down_proj", WIDTH, FF)):
        turned = lambda a, n_out=n_out: a.reshape(EXPERTS, n_out, -1).transpose(0, 2, 1) if a.size > 1 else a.reshape(())
        tensors, weights = m.make(m.rng, EXPERTS * n_out, n_in)
        for suffix, (kind, a) in tensors.items():
            m.stored[f"{p}experts.{name}{'' if suffix == '.weight' else '_' + suffix[1:]}"] = kind, turned(a)
        m.floats[f"{p}experts.{name}"] = "F32", turned(weights)
    return m


def gpt_oss_stacks(make, settings):
    m = gpt_oss()
    m.make, m.quantisation = make, settings
    return modelopt_stacks(m)


def llama4(make, settings, stacked=False):
    """The text of Llama 4 with an expert a module, as llm-compressor cuts the stacks, or (stacked) as fbgemm_fp8 keeps them; the floats are stacks."""
    m = Model((make, settings), architectures=["Llama4ForCausalLM"], model_type="llama4_text", head_dim=WIDTH // HEADS, intermediate_size_mlp=FF, num_local_experts=EXPERTS,
              num_experts_per_tok=1, interleave_moe_layer_step=1, rope_theta=500000.0, attention_chunk_size=32)
    p = m.outside(m.linear) + "feed_forward."
    m.sixteen(p + "router", EXPERTS, WIDTH)
    for name, n_out, n_in in (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
        m.linear(f"{p}shared_expert.{name}", n_out, n_in)
        for e in range(EXPERTS):
            m.linear(f"{p}experts.{e}.{name}", n_out, n_in)
    of = lambda name: np.stack([m.floats.pop(f"{p}experts.{e}.{name}.weight")[1].T for e in range(EXPERTS)])
    m.floats[p + "experts.gate_up_proj"] = "F32", np.concatenate([of("gate_proj"), of("up_proj")], 2)
    m.floats[p + "experts.down_proj"] = "F32", of("down_proj")
    if stacked:
        for name, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
            of = lambda end: np.concatenate([np.stack([m.stored.pop(f"{p}experts.{e}.{part}{end}")[1] for e in range(EXPERTS)]) for part in parts], 1)
            m.stored[f"{p}experts.{name}"] = "F8_E4M3", of(".weight").transpose(0, 2, 1)
            scales = of(".weight_scale")
            m.stored[f"{p}experts.{name}_scale"] = "F32", scales.transpose(0, 2, 1) if len(parts) == 2 else scales
    return m


def mistral(rng, n_out, n_in):
    """Mistral's own FP8: a scale for the tensor by DeepSeek's name, and one for rows by a name of its own."""
    tensors, weights = fp8(0, 0)[0](rng, n_out, n_in)
    scales = {".weight_scale_inv": tensors[".weight_scale"], ".activation_scale": tensors[".input_scale"]}
    return {".weight": tensors[".weight"]} | {name: (kind, a.reshape(())) for name, (kind, a) in scales.items()}, weights


def stack_floats(m):
    """The floats of experts that are modules, as the 16-bit checkpoint has them: stacks."""
    [p] = {name.partition("experts.")[0] + "experts." for name in m.floats if "experts.0." in name}
    of = lambda name: np.stack([m.floats.pop(f"{p}{e}.{name}.weight")[1] for e in range(EXPERTS)])
    m.floats |= {p + "gate_up_proj": ("F32", np.concatenate([of("gate_proj"), of("up_proj")], 1)), p + "down_proj": ("F32", of("down_proj"))}
    return m


def mistral4(make, settings):
    m = deepseek(make, settings, architectures=["Mistral4ForCausalLM"], model_type="mistral4")
    for tensors in (m.stored, m.floats):
        del tensors["model.layers.1.mlp.gate.e_score_correction_bias"]
    return stack_floats(m)


def mistral4_stacks():
    """Its experts in stacks of [outputs, inputs], each expert with a scale for its codes and one for its rows."""
    m, p = mistral4(mistral, MISTRAL_FP8), "model.layers.1.mlp.experts."
    m.stored = {name: tensor for name, tensor in m.stored.items() if not name.startswith(p)}
    for name, n_out, n_in in (("gate_up_proj", 2 * FF, WIDTH), ("down_proj", WIDTH, FF)):
        made = [m.make(m.rng, n_out, n_in) for _ in range(EXPERTS)]
        stack = lambda suffix: np.stack([tensors[suffix][1] for tensors, _ in made])
        m.stored |= {p + name: ("F8_E4M3", stack(".weight")), f"{p}{name}_scale_inv": ("F32", stack(".weight_scale_inv")[:, None, None]),
                     f"{p}{name}_activation_scale": ("F32", stack(".activation_scale"))}
        m.floats[p + name] = "F32", np.stack([weights for _, weights in made])
    return m


def gemma4_experts(make, settings):
    """Gemma 4's MLP with experts beside it."""
    m = Model((make, settings), architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", head_dim=WIDTH // HEADS, global_head_dim=WIDTH // HEADS,
              layer_types=["full_attention"], hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=EXPERTS, top_k_experts=2, moe_intermediate_size=FF)
    p = m.outside(m.linear)
    for norm in ("pre_feedforward_layernorm", "post_feedforward_layernorm", "post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"):
        m.plain(f"{p}{norm}.weight", WIDTH)
    for name, n in (("self_attn.q_norm.weight", WIDTH // HEADS), ("self_attn.k_norm.weight", WIDTH // HEADS), ("router.scale", WIDTH), ("router.per_expert_scale", EXPERTS),
                    ("layer_scalar", 1)):
        m.plain(p + name, n)
    m.sixteen(p + "router.proj", EXPERTS, WIDTH)
    for prefix in ["mlp."] + [f"experts.{e}." for e in range(EXPERTS)]:
        for name, n_out, n_in in (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
            m.linear(p + prefix + name, n_out, n_in)
    return stack_floats(m)


def qwen3_vl(m):
    """The text of a Qwen3-MoE within the names and the configuration of Qwen3-VL."""
    m.stored, m.floats = ({name.replace("model.", "model.language_model."): tensor for name, tensor in tensors.items()} for tensors in (m.stored, m.floats))
    m.config = m.config | {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe"}
    return m


GATES = ["lm_head"] + [f"model.layers.{i}.mlp.gate" for i in range(48)]
FP8_INPUTS = dict(type="float", strategy="tensor", dynamic=False, observer="minmax")
MISTRAL_FP8 = {"activation_scheme": "static", "dequantize": False, "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
               "quant_method": "fp8", "weight_block_size": None}
REPOSITORIES = {
    "openai/gpt-oss-20b": lambda: gpt_oss(),
    "Qwen/Qwen3-8B-FP8": lambda: dense(fp8(128, 128, "BF16", ".weight_scale_inv")[0], {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, QWEN3),
    "Qwen/Qwen3-8B-AWQ": lambda: dense(awq(64)[0], {"bits": 4, "group_size": 64, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm", "zero_point": True}, QWEN3),
    "JunHowie/Qwen3-8B-GPTQ-Int4": lambda: dense(gptq(4, 64, sym=True, act_order=True)[0], {
        "bits": 4, "checkpoint_format": "gptq", "desc_act": True, "group_size": 64, "lm_head": False, "meta": {
            "damp_auto_increment": 0.0025, "damp_percent": 0.01, "mse": 0.0, "quantizer": ["gptqmodel:2.2.0"], "static_groups": False, "true_sequential": True,
            "uri": "https://github.com/modelcloud/gptqmodel"}, "pack_dtype": "int32", "quant_method": "gptq", "sym": True}, QWEN3),
    "moonshotai/Kimi-K2-Thinking": lambda: deepseek(int_packed(4, 32)[0], red_hat(
        "pack-quantized", ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], num_bits=4, group_size=32, strategy="group"),
        only_experts=True, model_type="kimi_k2", routed_scaling_factor=2.827, rope_theta=50000.0, rope_scaling={
            "beta_fast": 1.0, "beta_slow": 1.0, "factor": 2.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 32, "type": "yarn"}),
    "deepseek-ai/DeepSeek-R1": lambda: deepseek(fp8(128, 128, "F32", ".weight_scale_inv")[0], {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, model_type="deepseek_v3", rope_scaling={
            "beta_fast": 32, "beta_slow": 1, "factor": 2, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 32, "type": "yarn"}),
    "Qwen/Qwen3-30B-A3B-FP8": lambda: dense(fp8(128, 128, "BF16", ".weight_scale_inv")[0], {
        "activation_scheme": "dynamic", "modules_to_not_convert": GATES, "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, QWEN3_MOE),
    "Qwen/Qwen3-30B-A3B-GPTQ-Int4": lambda: dense(gptq(4, 64, sym=True)[0], {
        "bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.01, "desc_act": False, "group_size": 64, "lm_head": False, "model_file_base_name": None,
        "model_name_or_path": None, "quant_method": "gptq", "static_groups": False, "sym": True, "true_sequential": True}, QWEN3_MOE),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": lambda: dense(with_zero_bias(gptq(4, 64, sym=True)[0]), auto_gptq(desc_act=False, group_size=64), QWEN2, bias=True),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8": lambda: dense(with_zero_bias(gptq(8, 64, sym=True)[0]), auto_gptq(desc_act=False, group_size=64, bits=8), QWEN2, bias=True),
    "Qwen/Qwen2.5-7B-Instruct-AWQ": lambda: dense(awq(64)[0], {"bits": 4, "group_size": 64, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm", "zero_point": True}, QWEN2, bias=True),
    "TheBloke/Llama-2-7B-Chat-GPTQ": lambda: dense(with_zero_bias(gptq(4, 64, sym=True, act_order=True)[0]), {
        "bits": 4, "damp_percent": 0.1, "desc_act": True, "group_size": 64, "model_file_base_name": "model", "model_name_or_path": None, "quant_method": "gptq",
        "static_groups": False, "sym": True, "true_sequential": True}, LLAMA),
    "TheBloke/Mistral-7B-Instruct-v0.2-AWQ": lambda: dense(awq(64)[0], {"bits": 4, "group_size": 64, "quant_method": "awq", "version": "gemm", "zero_point": True}, MISTRAL),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8": lambda: dense(fp8(0, 0, config={})[0], red_hat("float-quantized", type="float", strategy="tensor", inputs=inputs(**FP8_INPUTS)), LLAMA),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic": lambda: dense(fp8(1, 0, "BF16", config={})[0], red_hat("float-quantized", type="float", inputs=inputs(type="float")), LLAMA),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": lambda: dense(int_packed(4, 64)[0], red_hat("pack-quantized", num_bits=4, group_size=64, strategy="group", actorder="weight"), LLAMA),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": lambda: dense(int8()[0], red_hat("int-quantized", inputs=inputs()), LLAMA),
    "RedHatAI/Phi-3-medium-128k-instruct-quantized.w4a16": lambda: dense(int_packed(4, 64)[0], red_hat("pack-quantized", num_bits=4, group_size=64, strategy="group"), PHI3, fused=True),
    "amd/Llama-3.1-8B-Instruct-FP8-KV": lambda: dense(fp8(0, 0, config={})[0], {
        "activation_scheme": "static", "algo_config": None, "exclude": ["lm_head"], "export": {"kv_cache_group": ["*k_proj", "*v_proj"], "pack_method": "reorder", "weight_format": "real_quantized"},
        "global_quant_config": {"bias": None, "input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": False, "qscheme": "per_tensor"}, "output_tensors": None,
                                "weight": {"dtype": "fp8_e4m3", "is_dynamic": False, "qscheme": "per_tensor"}},
        "kv_cache_scheme": "static", "quant_method": "quark", "quant_mode": "eager_mode"}, LLAMA),
    "Intel/Qwen3-8B-int4-AutoRound": lambda: dense(gptq(4, 64, sym=True)[0], {
        "autoround_version": "0.5.1", "bits": 4, "data_type": "int", "group_size": 64, "packing_format": "auto_round:auto_gptq", "quant_method": "auto-round", "sym": True}, QWEN3),
    "meta-llama/Llama-3.1-405B-Instruct-FP8": lambda: dense(with_bound(fp8(1, 0, config={})[0]), {
        "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"], "quant_method": "fbgemm_fp8"}, LLAMA),
    "RedHatAI/Phi-3-medium-128k-instruct-quantized.w8a8": lambda: dense(int8()[0], red_hat("int-quantized", inputs=inputs()), PHI3, fused=True),
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-quantized.w4a16": lambda: llama4(int_packed(4, 64)[0], red_hat("pack-quantized", num_bits=4, group_size=64, strategy="group")),
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": lambda: llama4(fp8(1, 0, "BF16", config={})[0], red_hat("float-quantized", type="float", inputs=inputs(type="float"))),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": lambda: llama4(fp8(1, 0, config={})[0], {
        "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"], "quant_method": "fbgemm_fp8"}, stacked=True),
    "mistralai/Ministral-3-8B-Instruct-2512": lambda: dense(mistral, MISTRAL_FP8, MISTRAL | {
        "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0.1,
                                                                                                  "original_max_position_embeddings": 32}}),
    "mistralai/Mistral-Small-4-119B-2603": lambda: mistral4_stacks(),
    "mistralai/Mistral-Small-4-119B-2603-NVFP4": lambda: mistral4(nvfp4(False)[0], red_hat("nvfp4-pack-quantized", num_bits=4, group_size=16, strategy="tensor_group", type="float")),
    "RedHatAI/gemma-4-26B-A4B-it-FP8-Dynamic": lambda: gemma4_experts(fp8(1, 0, "BF16", config={})[0], red_hat("float-quantized", type="float", inputs=inputs(type="float"))),
    "Qwen/Qwen3-VL-30B-A3B-Instruct-FP8": lambda: qwen3_vl(dense(fp8(128, 128, "BF16", ".weight_scale_inv")[0], {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, QWEN3_MOE)),
    "nvidia/Llama-4-Scout-17B-16E-Instruct-FP8": lambda: modelopt_stacks(llama4(fp8(0, 0, config={})[0], modelopt("FP8"))),
    "nvidia/Llama-4-Scout-17B-16E-Instruct-FP4": lambda: modelopt_stacks(llama4(nvfp4(True)[0], modelopt("NVFP4"))),
    "gpt-oss in NVFP4 by ModelOpt": lambda: gpt_oss_stacks(nvfp4(True)[0], modelopt("NVFP4")),
    "unsloth/gpt-oss-20b-unsloth-bnb-4bit": lambda: gpt_oss_modules(bnb("nf4", double=True)[0], {
        "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["router", "lm_head", "self_attn"], "load_in_4bit": True, "load_in_8bit": False,
        "quant_method": "bitsandbytes"}),
    "RedHatAI/DeepSeek-R1-quantized.w8a8": lambda: deepseek(int8()[0], red_hat("int-quantized", inputs=inputs()), model_type="deepseek_v3"),
    "meta-llama/Llama-Guard-3-8B-INT8": lambda: dense(int8(scb=True)[0], {
        "_load_in_4bit": False, "_load_in_8bit": True, "bnb_4bit_compute_dtype": "float32", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "fp4",
        "bnb_4bit_use_double_quant": False, "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": ["lm_head"],
        "llm_int8_threshold": 6.0, "load_in_4bit": False, "load_in_8bit": True, "quant_method": "bitsandbytes"}, LLAMA),
    "RedHatAI/Qwen3-8B-NVFP4": lambda: dense(nvfp4(False)[0], red_hat("nvfp4-pack-quantized", num_bits=4, group_size=16, strategy="tensor_group", type="float",
                                                                      inputs=inputs(num_bits=4, group_size=16, strategy="tensor_group", type="float", dynamic="local")), QWEN3),
    "nvidia/Llama-3.1-8B-Instruct-FP8": lambda: dense(fp8(0, 0, config={})[0], {
        "quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"], "producer": {"name": "modelopt", "version": "0.29.0"},
        "config_groups": {"group_0": {"input_activations": {"dynamic": False, "num_bits": 8, "type": "float"}, "weights": {"dynamic": False, "num_bits": 8, "type": "float"},
                                      "targets": ["Linear"]}}}, LLAMA),
    "nvidia/Qwen3-8B-NVFP4": lambda: dense(nvfp4(True)[0], {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "producer": {"name": "modelopt", "version": "0.35.0"},
        "config_groups": {"group_0": {"input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                                      "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}}, QWEN3),
    "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit": lambda: dense(bnb("nf4", double=True)[0], {
        "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True, "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": None,
        "llm_int8_threshold": 6.0, "load_in_4bit": True, "load_in_8bit": False, "quant_method": "bitsandbytes"}, LLAMA),
    "unsloth/Qwen3-8B-unsloth-bnb-4bit": lambda: dense(bnb("nf4", double=True)[0], {
        "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["lm_head", "model.layers.0.mlp", "model.layers.0.self_attn.q_proj"], "load_in_4bit": True,
        "load_in_8bit": False, "quant_method": "bitsandbytes"}, QWEN3, sixteen=("q_proj", "gate_proj", "up_proj", "down_proj"))}


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_a_published_layout_opens_and_answers(quire, tmp_path, repository):
    m = REPOSITORIES[repository]()
    quantised, floats, packed = m.write(tmp_path / "q", True), m.write(tmp_path / "f", False), tmp_path / "p.quire"
    assert logits(quire, quantised, "--compute", "f32") == logits(quire, floats, "--compute", "f32")
    run(quire, "pack", quantised, "-o", packed, "-q")
    assert logits(quire, packed) == logits(quire, quantised)
