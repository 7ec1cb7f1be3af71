/* The checksum of a block of a packed model: XXH3 of 64 bits, at the speed of memory. The
 * same on every instruction set. */
#ifndef FILE_CHECKSUM_H
#define FILE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Any thread. */
uint64_t checksum(const void *bytes, size_t n);

/* With AVX2, where the processor has it. */
uint64_t checksum_avx2(const void *bytes, size_t n);

#endif
