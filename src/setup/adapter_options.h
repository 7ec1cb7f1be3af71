/* What options say about adapters: whether there are any, how many, and what they
 * take. */
#ifndef SETUP_ADAPTER_OPTIONS_H
#define SETUP_ADAPTER_OPTIONS_H

#include "quire.h"

/* Whether requests may have adapters. */
bool options_have_adapters(const quire_options *o);
/* How many may be loaded at once. */
int32_t options_max_loaded(const quire_options *o);
/* The largest rank of a batch's adapters: of a blend, the sum of its parts'. */
int32_t options_batch_rank(const quire_options *o);
/* How many adapters o->loras has. */
int32_t options_numbered_adapters(const quire_options *o);
/* Bytes that adapters may take once all that may be loaded are: as many times the largest
 * file of those that are named, or that the directory has. */
int64_t options_adapter_bytes(const quire_options *o);

#endif
