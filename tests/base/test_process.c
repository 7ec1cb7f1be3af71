/* What the system counts of this process. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "test.h"

TEST(an_opened_file_is_one_more) {
    process_numbers before = process_read();
    int fd = open("/dev/null", O_RDONLY);
    process_numbers with = process_read();
    assert_true(fd >= 0);
    close(fd);
    process_numbers after = process_read();
    assert_true(before.n_files >= 3);
    assert_int_equal(with.n_files, before.n_files + 1);
    assert_int_equal(after.n_files, before.n_files);
    assert_true(before.max_files == -1 || before.max_files > before.n_files);
}

TEST(memory_that_is_touched_is_resident) {
    size_t n = (size_t)64 << 20;
    process_numbers before = process_read();
    char *p = malloc(n);
    assert_non_null(p);
    memset(p, 1, n);
    process_numbers with = process_read();
    assert_int_equal(p[n / 2], 1);
    free(p);
    assert_true(before.resident_bytes > 0 && before.virtual_bytes >= before.resident_bytes);
    assert_true(with.resident_bytes > before.resident_bytes + (int64_t)n / 2);
    assert_true(with.virtual_bytes >= before.virtual_bytes + (int64_t)n / 2);
}

TEST(processor_time_grows_by_what_is_computed) {
    process_numbers before = process_read(), now;
    volatile uint64_t x = 1;
    do {
        for (int i = 0; i < 1000000; i++) {
            x = x * 3 + 1;
        }
        now = process_read();
    } while (now.cpu_s < before.cpu_s + 0.05);
    assert_true(now.started_s == before.started_s);
    assert_true(now.started_s > 1e9 && now.started_s <= (double)clock_unix_s() + 1.0);
}

TEST_MAIN(NULL, NULL)
