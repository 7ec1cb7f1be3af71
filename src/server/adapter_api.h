/* Calls for LoRA adapters: vLLM's that load and unload them, llama.cpp's that scale them.
 * The loop's thread. */
#ifndef SERVER_ADAPTER_API_H
#define SERVER_ADAPTER_API_H

#include "server/conn.h"

/* POST /v1/load_lora_adapter: {"lora_name", "lora_path", "load_inplace"}. The
 * operator's. */
void adapter_api_load(conn *c);
/* POST /v1/unload_lora_adapter: {"lora_name"}. The operator's. */
void adapter_api_unload(conn *c);
/* GET /lora-adapters: those of --lora, with their scales. POST, the operator's: an array
 * of {"id", "scale"}; others get scale 0. */
void adapter_api_scales(conn *c);

#endif
