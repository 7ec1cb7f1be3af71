#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "test.h"

static void expect(const void *bytes, size_t n, const char *hex) {
    uint8_t digest[SHA256_BYTES];
    char got[2 * SHA256_BYTES + 1];
    sha256(bytes, n, digest);
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(got, hex);
}

TEST(the_standards_examples_have_their_digests) {
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(two_blocks, strlen(two_blocks),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *many = malloc(1000000);
    memset(many, 'a', 1000000);
    expect(many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(many);
}

/* Lengths around the ends of blocks, by another implementation. */
TEST(lengths_around_a_block_have_their_digests) {
    char x[120];
    memset(x, 'x', sizeof x);
    expect(x, 55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
    expect(x, 56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
    expect(x, 63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
    expect(x, 64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
    expect(x, 65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
    expect(x, 119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
}

/* Pieces of every two lengths, whole blocks between them. */
TEST(pieces_have_the_digest_of_the_whole) {
    char text[300];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i * i % 251);
    }
    for (size_t first = 0; first <= 130; first++) {
        for (size_t second = 0; second <= 130; second++) {
            uint8_t whole[SHA256_BYTES], pieces[SHA256_BYTES];
            sha256_sum s;
            sha256_begin(&s);
            sha256_add(&s, text, first);
            sha256_add(&s, text + first, second);
            sha256_add(&s, text + first + second, sizeof text - first - second);
            sha256_end(&s, pieces);
            sha256(text, sizeof text, whole);
            assert_memory_equal(whole, pieces, sizeof whole);
        }
    }
    expect(text, sizeof text, "edb958a7f74112c74420fcece4248ced7ddd5cad837f3f86ccb21a3ec2bcb87b");
}

TEST_MAIN(NULL, NULL)
