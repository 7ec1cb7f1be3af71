/* Functions of a program that have names of functions inside libquire: neither may meet
 * the other. */
#include <stdlib.h>

void log_line(void), mem_new(void), mem_free(void), sha256(void), json_get(void), json_read(void),
    strbuf_add(void), ring_open(void), err_set(void), engine_open(void), tokenizer_open(void), clock_us(void);

void log_line(void) {
    abort();
}
void mem_new(void) {
    abort();
}
void mem_free(void) {
    abort();
}
void sha256(void) {
    abort();
}
void json_get(void) {
    abort();
}
void json_read(void) {
    abort();
}
void strbuf_add(void) {
    abort();
}
void ring_open(void) {
    abort();
}
void err_set(void) {
    abort();
}
void engine_open(void) {
    abort();
}
void tokenizer_open(void) {
    abort();
}
void clock_us(void) {
    abort();
}
