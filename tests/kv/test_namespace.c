#include <string.h>

#include "kv/namespace.h"
#include "test.h"

TEST(names_that_fall_into_one_bucket_stay_apart) {
    kv_namespaces s;
    assert_int_equal(kv_namespaces_open(&s, 2), QUIRE_OK); /* two buckets for all names */
    int32_t a = kv_namespaces_add(&s, NAMESPACE_PLAIN, "a", 1),
            b = kv_namespaces_add(&s, NAMESPACE_PLAIN, "ab", 2);
    assert_int_not_equal(a, b);
    assert_int_equal(kv_namespaces_add(&s, NAMESPACE_PLAIN, "c", 1), NAMESPACE_NONE);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "a", 1), a);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "ab", 2), b);
    for (char c = 'b'; c <= 'z'; c++) {
        assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, &c, 1), NAMESPACE_NONE);
    }
    kv_namespaces_remove(&s, a);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "a", 1), NAMESPACE_NONE);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "ab", 2), b);
    assert_int_equal(s.n, 1);
    kv_namespaces_close(&s);
}

TEST(many_names_come_and_go) {
    kv_namespaces s;
    int32_t numbers[100];
    assert_int_equal(kv_namespaces_open(&s, 100), QUIRE_OK);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++) {
            int name[2] = {round, i};
            numbers[i] = kv_namespaces_add(&s, NAMESPACE_PLAIN, name, sizeof name);
            assert_in_range(numbers[i], 0, 99);
        }
        for (int i = 0; i < 100; i++) {
            int name[2] = {round, i};
            assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, name, sizeof name), numbers[i]);
        }
        for (int i = 99; i >= 0; i--) {
            kv_namespaces_remove(&s, numbers[(i * 37) % 100]);
        }
        assert_int_equal(s.n, 0);
    }
    kv_namespaces_close(&s);
}

TEST(the_longest_name_and_the_empty_one_are_names) {
    kv_namespaces s;
    char name[KV_NAMESPACE_BYTES];
    memset(name, 'x', sizeof name);
    assert_int_equal(kv_namespaces_open(&s, 3), QUIRE_OK);
    int32_t a = kv_namespaces_add(&s, NAMESPACE_PLAIN, name, sizeof name),
            b = kv_namespaces_add(&s, NAMESPACE_PLAIN, NULL, 0);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, name, sizeof name), a);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, name, sizeof name - 1), NAMESPACE_NONE);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, NULL, 0), b);
    kv_namespaces_close(&s);
}

TEST(one_name_behind_two_prefixes_names_two_spaces) {
    kv_namespaces s;
    assert_int_equal(kv_namespaces_open(&s, 4), QUIRE_OK);
    int32_t plain = kv_namespaces_add(&s, NAMESPACE_PLAIN, "a", 1),
            all = kv_namespaces_add(&s, NAMESPACE_PUBLIC, "a", 1);
    int32_t first = kv_namespaces_add(&s, 0, "a", 1), second = kv_namespaces_add(&s, 1, "a", 1);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "a", 1), plain);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PUBLIC, "a", 1), all);
    assert_int_equal(kv_namespaces_find(&s, 0, "a", 1), first);
    assert_int_equal(kv_namespaces_find(&s, 1, "a", 1), second);
    kv_namespaces_remove(&s, first);
    assert_int_equal(kv_namespaces_find(&s, 0, "a", 1), NAMESPACE_NONE);
    assert_int_equal(kv_namespaces_find(&s, 1, "a", 1), second);
    kv_namespaces_close(&s);
}

/* Whatever bucket they fall into. */
TEST(a_name_behind_another_prefix_is_not_found) {
    kv_namespaces s;
    assert_int_equal(kv_namespaces_open(&s, 2), QUIRE_OK);
    int32_t a = kv_namespaces_add(&s, 7, "tenant", 6);
    for (int32_t behind = 0; behind < 100; behind++) {
        assert_int_equal(kv_namespaces_find(&s, behind, "tenant", 6), behind == 7 ? a : NAMESPACE_NONE);
    }
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PLAIN, "tenant", 6), NAMESPACE_NONE);
    assert_int_equal(kv_namespaces_find(&s, NAMESPACE_PUBLIC, "tenant", 6), NAMESPACE_NONE);
    kv_namespaces_close(&s);
}

TEST_MAIN(NULL, NULL)
