/* Chains of instructions whose length is known: the core clock, the limits of this CPU's AES instructions, and a probe.
 *
 * - clock: dependent register additions, one cycle each. The addend is run-time data, since some cores execute small
 *   immediate additions while renaming, several a cycle.
 * - cbc: the block chain of CBC encryption, nine AES rounds and the last one, each waiting for the one before. The
 *   exclusive-or with the plaintext is no part of it: it can be folded into the key of the last round.
 * - encrypt, decrypt: independent streams, as many as hide the latency. Ten rounds are an AES-128 block.
 * - vaes_encrypt, vaes_decrypt: the same with 256-bit registers, two blocks at a time.
 * - issue: independent register additions, as many a cycle as the core can issue. A sibling thread takes its share of
 *   those slots, so that this chain shows at once what the others hardly do: whether one is busy.
 *
 * The loops hold no memory operand. Inline assembly needs no compiler option; on aarch64 the instructions are written
 * as words, since compilers disagree on how to enable them. Whether the CPU has the instructions is asked at run time.
 */

#include "hotloop.h"

#define TEN(x) x x x x x x x x x x
#define HUNDRED(x) TEN(TEN(x))

typedef void (*chain)(int64_t iterations);

#if defined(__x86_64__)

#include <cpuid.h>

#define LOOP(body) "1:\n" body "dec %[n]\n jnz 1b\n"
#define XMM(register) "%%xmm" #register
#define YMM(register) "%%ymm" #register
#define ON12(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define CLOBBERS                                                                                                       \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm15"

static void clock_chain(int64_t n)
{
    uint64_t sum = 0, addend = (uint64_t)n;

    __asm__ volatile(LOOP(HUNDRED("add %[addend], %[sum]\n")) : [sum] "+r"(sum), [n] "+r"(n) : [addend] "r"(addend) : "cc");
}

#define ADD(i) "add %[n], %[s" #i "]\n"
#define ENC(i) "aesenc %%xmm15, " XMM(i) "\n"
#define DEC(i) "aesdec %%xmm15, " XMM(i) "\n"
#define VENC(i) "vaesenc %%ymm15, " YMM(i) ", " YMM(i) "\n"
#define VDEC(i) "vaesdec %%ymm15, " YMM(i) ", " YMM(i) "\n"
#define BLOCK ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) "aesenclast %%xmm15, %%xmm0\n"

static void cbc_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(BLOCK)) : [n] "+r"(n) : : CLOBBERS);
}

static void encrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON12(ENC))) : [n] "+r"(n) : : CLOBBERS);
}

static void decrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON12(DEC))) : [n] "+r"(n) : : CLOBBERS);
}

static void vaes_encrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON12(VENC))) "vzeroupper\n" : [n] "+r"(n) : : CLOBBERS);
}

static void vaes_decrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON12(VDEC))) "vzeroupper\n" : [n] "+r"(n) : : CLOBBERS);
}

static int has_aes(void)
{
    unsigned int a, b, c = 0, d;

    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_AES;
}

/* VAES by CPUID leaf 7, and 256-bit registers that the operating system saves (XCR0 bits 1 and 2). */
static int has_vaes(void)
{
    unsigned int a, b, c = 0, d, xcr0, high;

    if (!has_aes() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    return (xcr0 & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & (1u << 9);
}

#define STREAMS 12
#define VECTOR_STREAMS 24

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

#define LOOP(body) "1:\n" body "subs %[n], %[n], #1\n b.ne 1b\n"

#define ADD(i) "add %[s" #i "], %[s" #i "], %[n]\n"

/* AESE and AESMC on the same register, adjacent, so that cores that fuse them do. v31 is the round key. */
#define PAIR(i, e, m) ".inst " #e " + " #i "\n .inst " #m " + " #i " + (" #i " << 5)\n"
#define ENC(i) PAIR(i, 0x4e284be0, 0x4e286800)
#define DEC(i) PAIR(i, 0x4e285be0, 0x4e287800)
#define ON24(op)                                                                                                       \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15) op(16)       \
        op(17) op(18) op(19) op(20) op(21) op(22) op(23)
#define BLOCK ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ENC(0) ".inst 0x4e284be0\n"
#define CLOBBERS                                                                                                       \
    "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v31"

static void clock_chain(int64_t n)
{
    uint64_t sum = 0, addend = (uint64_t)n;

    __asm__ volatile(LOOP(HUNDRED("add %[sum], %[sum], %[addend]\n"))
                     : [sum] "+r"(sum), [n] "+r"(n)
                     : [addend] "r"(addend)
                     : "cc");
}

static void cbc_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(BLOCK)) : [n] "+r"(n) : : CLOBBERS);
}

static void encrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON24(ENC))) : [n] "+r"(n) : : CLOBBERS);
}

static void decrypt_chain(int64_t n)
{
    __asm__ volatile(LOOP(TEN(ON24(DEC))) : [n] "+r"(n) : : CLOBBERS);
}

static int has_aes(void)
{
    return (getauxval(AT_HWCAP) & (1 << 3)) != 0; /* HWCAP_AES */
}

static int has_vaes(void)
{
    return 0;
}

#define STREAMS 24
#define VECTOR_STREAMS 0
#define vaes_encrypt_chain 0
#define vaes_decrypt_chain 0

#else
#define NO_CHAINS
#endif

#ifdef NO_CHAINS

EXPORT int64_t hotloop_probe(int64_t iterations)
{
    (void)iterations;
    return 0;
}

EXPORT int64_t hotloop_chain_units(int chain_number)
{
    (void)chain_number;
    return 0;
}

EXPORT int hotloop_chain_slice(int chain_number, int64_t warm_up, int64_t calls, int64_t elapsed[2])
{
    (void)chain_number, (void)warm_up, (void)calls, (void)elapsed;
    return -1;
}

#else

#define ON6(op) op(0) op(1) op(2) op(3) op(4) op(5)

static __attribute__((noinline)) void issue_chain(int64_t n)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;

    __asm__ volatile(LOOP(TEN(ON6(ADD)))
                     : [s0] "+r"(a), [s1] "+r"(b), [s2] "+r"(c), [s3] "+r"(d), [s4] "+r"(e), [s5] "+r"(f), [n] "+r"(n)
                     :
                     : "cc");
}

EXPORT int64_t hotloop_probe(int64_t iterations)
{
    if (iterations < 1)
        return 0;

    int64_t start = nanoseconds(CLOCK_MONOTONIC);

    issue_chain(iterations);
    return nanoseconds(CLOCK_MONOTONIC) - start;
}

/* In the order of worker/chains.py: of one iteration the cycles (clock) or AES-128 blocks. */
static const struct {
    chain run;
    int (*available)(void);
    int64_t units;
} CHAINS[] = {
    {clock_chain, 0, 100},
    {cbc_chain, has_aes, 10},
    {encrypt_chain, has_aes, STREAMS},
    {decrypt_chain, has_aes, STREAMS},
    {vaes_encrypt_chain, has_vaes, VECTOR_STREAMS},
    {vaes_decrypt_chain, has_vaes, VECTOR_STREAMS},
};

/* Returns cycles or blocks of one iteration, 0 if this CPU cannot run the chain. */
EXPORT int64_t hotloop_chain_units(int chain_number)
{
    if (chain_number < 0 || chain_number >= (int)(sizeof CHAINS / sizeof CHAINS[0]))
        return 0;
    return CHAINS[chain_number].available && !CHAINS[chain_number].available() ? 0 : CHAINS[chain_number].units;
}

/* One slice of `calls` iterations after `warm_up` untimed ones, as hotloop_slice. Returns 0, or -1 for a chain that this
 * CPU cannot run or a clock that cannot be read.
 */
EXPORT int hotloop_chain_slice(int chain_number, int64_t warm_up, int64_t calls, int64_t elapsed[2])
{
    if (hotloop_chain_units(chain_number) == 0)
        return -1;
    if (warm_up > 0)
        CHAINS[chain_number].run(warm_up);

    struct stopwatch watch = start_stopwatch();

    if (calls > 0)
        CHAINS[chain_number].run(calls);
    return stop_stopwatch(&watch, elapsed);
}

#endif
