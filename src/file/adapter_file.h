/* An adapter on disk: a directory as PEFT writes it (adapter_config.json and
 * adapter_model.safetensors), or a GGUF file of llama.cpp's convert_lora_to_gguf.py
 * (general.type "adapter").
 *
 * Files are read into memory whole: one that is replaced or cut meanwhile changes nothing
 * that was checked. All of them are hostile. Immutable after open: any thread may
 * read. */
#ifndef FILE_ADAPTER_FILE_H
#define FILE_ADAPTER_FILE_H

#include "file/adapter_config.h"

/* "PEFT" or "GGUF". */
const char *adapter_format_name(adapter_format f);
/* Reads an adapter's facts: only the config of a directory, or a whole GGUF file, at most
 * max_bytes. Errors as adapter_file_open. */
quire_err adapter_facts_read(const char *path, int64_t max_bytes, adapter_facts *out, quire_error *err);

/* path: a directory, a file of one, or a GGUF file. QUIRE_NOT_FOUND: there is none;
 * QUIRE_UNSUPPORTED names another kind of adapter, or an option, and what to do;
 * QUIRE_TOO_LARGE: over max_bytes; QUIRE_BAD_FILE. Reads the files and computes their
 * digest. */
quire_err adapter_file_open(const char *path, int64_t max_bytes, adapter_file **out, quire_error *err);
/* As above, of bytes in memory, which are copied; config.p NULL: content is a GGUF file.
 * name: for messages. */
quire_err adapter_file_open_memory(str config, str content, const char *name, adapter_file **out,
                                   quire_error *err);
/* NULL is allowed. */
void adapter_file_close(adapter_file *f);

/* The scale of a module's addend. module: its name, by which the config's patterns
 * choose rank and alpha; rank: that of its tensors, which must be the config's:
 * QUIRE_BAD_FILE. */
quire_err adapter_file_scale(const adapter_file *f, str module, int64_t rank, float *out, quire_error *err);

#endif
