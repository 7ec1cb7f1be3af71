#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "test.h"

static void expect(const void *key, size_t n_key, const char *text, const char *hex) {
    uint8_t digest[SHA256_BYTES];
    char got[2 * SHA256_BYTES + 1];
    hmac_sha256(key, n_key, text, strlen(text), digest);
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(got, hex);
}

/* RFC 4231, cases 1, 2, 6 and 7: keys shorter and longer than a block. */
TEST(the_standards_examples_have_their_digests) {
    uint8_t b[20], a[131];
    memset(b, 0x0b, sizeof b);
    memset(a, 0xaa, sizeof a);
    expect(b, sizeof b, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    expect("Jefe", 4, "what do ya want for nothing?",
           "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    expect(a, sizeof a, "Test Using Larger Than Block-Size Key - Hash Key First",
           "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    expect(a, sizeof a,
           "This is a test using a larger than block-size key and a larger than block-size data. The key "
           "needs to be hashed before being used by the HMAC algorithm.",
           "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_MAIN(NULL, NULL)
