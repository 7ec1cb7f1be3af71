/* Runs AMX code on processors without AMX: each AMX instruction traps as illegal, and a
 * handler executes it by the plain C model, so that tests run real object code. One
 * thread. */
#ifndef TESTS_AMX_TRAP_H
#define TESTS_AMX_TRAP_H

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "backend/cpu/amx_model.h"

static long amx_trapped; /* number of instructions executed so far */

/* A decoded instruction with a three-byte VEX prefix and an opcode of map 0F 38. All AMX
 * instructions have both. */
typedef struct amx_instruction {
    int pp, opcode; /* pp: implied prefix, 0: none, 1: 66, 2: F3, 3: F2 */
    int mod, reg, rm, vvvv;
    uint8_t *base; /* address of the memory operand */
    size_t stride; /* index times scale of the memory operand */
    const uint8_t *end;
} amx_instruction;

static inline uint64_t amx_register(const ucontext_t *u, int i) {
    static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[places[i]];
}

/* Decodes the memory operand: ModRM, SIB and displacement from p on. */
static inline void amx_read_operand(const ucontext_t *u, int x, int b, const uint8_t *p, amx_instruction *i) {
    uint64_t base = 0;
    int64_t disp = 0;
    const bool has_sib = i->rm == 4, is_absolute = i->mod == 0 && (has_sib ? p[0] & 7 : i->rm) == 5;
    const int n_disp = i->mod == 1 ? 1 : i->mod == 2 || is_absolute ? 4 : 0;
    if (has_sib) {
        const int index = (p[0] >> 3 & 7) | x << 3;
        base = is_absolute ? 0 : amx_register(u, (p[0] & 7) | b << 3);
        i->stride = index == 4 ? 0 : (size_t)amx_register(u, index) << (p[0] >> 6);
        p++;
    } else if (!is_absolute) {
        base = amx_register(u, i->rm | b << 3);
    }
    int32_t disp4;
    memcpy(&disp4, p, sizeof disp4);
    disp = n_disp == 1 ? (int8_t)p[0] : n_disp == 4 ? disp4 : 0;
    i->end = p + n_disp;
    if (is_absolute && !has_sib) {
        base = (uint64_t)(uintptr_t)i->end;
    }
    i->base = (uint8_t *)(uintptr_t)(base + (uint64_t)disp);
}

static inline bool amx_decode(const ucontext_t *u, amx_instruction *i) {
    const uint8_t *p = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];
    if (p[0] != 0xc4 || (p[1] & 31) != 2 || (p[2] & 0x84) != 0) {
        return false;
    }
    *i = (amx_instruction){.pp = p[2] & 3,
                           .vvvv = ~(p[2] >> 3) & 15,
                           .opcode = p[3],
                           .mod = p[4] >> 6,
                           .reg = p[4] >> 3 & 7,
                           .rm = p[4] & 7};
    i->end = p + 5;
    if (i->mod != 3) {
        amx_read_operand(u, (~p[1] >> 6) & 1, (~p[1] >> 5) & 1, p + 5, i);
    }
    return true;
}

static inline bool amx_execute(const amx_instruction *i) {
    const bool in_memory = i->mod != 3;
    switch (i->opcode << 4 | i->pp << 1 | (in_memory ? 1 : 0)) {
    case 0x490 | 1: {
        amx_config c;
        memcpy(&c, i->base, sizeof c);
        amx_configure(&c);
        return true;
    }
    case 0x490:
        amx_release();
        return true;
    case 0x490 | 3 << 1:
        amx_zero(i->reg);
        return true;
    case 0x4b0 | 1 << 1 | 1: /* TILELOADDT1 */
    case 0x4b0 | 3 << 1 | 1:
        amx_load(i->reg, i->base, i->stride);
        return true;
    case 0x4b0 | 2 << 1 | 1:
        amx_store(i->reg, i->base, i->stride);
        return true;
    case 0x5e0 | 3 << 1:
        amx_dot(i->reg, i->rm, i->vvvv);
        return true;
    default:
        return false;
    }
}

static inline void amx_trap(int signal_number, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    amx_instruction i;
    (void)info;
    if (!amx_decode(u, &i) || !amx_execute(&i)) {
        signal(signal_number, SIG_DFL); /* not AMX: the instruction traps again, without a handler */
        return;
    }
    amx_trapped++;
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)(intptr_t)i.end;
}

static inline void amx_trap_install(void) {
    struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    a.sa_sigaction = amx_trap;
    sigemptyset(&a.sa_mask);
    if (sigaction(SIGILL, &a, NULL) != 0) {
        abort();
    }
}

#endif
