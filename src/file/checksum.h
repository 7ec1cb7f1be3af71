/* Checksums of the blocks of packed models: 64-bit XXH3, as fast as memory and the same
 * on every instruction set. */
#ifndef FILE_CHECKSUM_H
#define FILE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Computes the checksum of n bytes. Any thread. */
uint64_t checksum(const void *bytes, size_t n);

/* Like checksum, with AVX2, which the CPU must have. */
uint64_t checksum_avx2(const void *bytes, size_t n);

#endif
