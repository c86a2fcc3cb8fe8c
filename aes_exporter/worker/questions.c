/* Questions that only the CPU can answer, and only by instructions: asked once, by a process that may die of them. */

#include "hotloop.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

/* Leaf 0x40000000 is not for __get_cpuid, which checks the leaf against the highest ordinary one. */
static void hypervisor_signature(char signature[13])
{
    unsigned int a, b, c = 0, d, words[3];

    memset(signature, 0, 13);
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 31))
        return;
    __cpuid(0x40000000, a, words[0], words[1], words[2]);
    memcpy(signature, words, sizeof words);
}

#else

static void hypervisor_signature(char signature[13])
{
    memset(signature, 0, 13);
}

#endif

#if defined(__x86_64__)

static void one_round(unsigned char state[16], const unsigned char key[16])
{
    __asm__ volatile("movdqu (%[state]), %%xmm0\n movdqu (%[key]), %%xmm1\n aesenc %%xmm1, %%xmm0\n movdqu %%xmm0, (%[state])\n"
                     :
                     : [state] "r"(state), [key] "r"(key)
                     : "xmm0", "xmm1", "memory");
}

#define CAN_TRY 1

#elif defined(__aarch64__)

/* AESE adds the key before the round and AESENC after it: a key of zeros first, then the key by exclusive-or. */
static void one_round(unsigned char state[16], const unsigned char key[16])
{
    __asm__ volatile("ldr q0, [%[state]]\n ldr q1, [%[key]]\n movi v31.16b, #0\n .inst 0x4e284be0\n .inst 0x4e286800\n"
                     "eor v0.16b, v0.16b, v1.16b\n str q0, [%[state]]\n"
                     :
                     : [state] "r"(state), [key] "r"(key)
                     : "v0", "v1", "v31", "memory");
}

#define CAN_TRY 1

#else

static void one_round(unsigned char state[16], const unsigned char key[16])
{
    (void)state, (void)key;
}

#define CAN_TRY 0

#endif

/* Writes the signature of the hypervisor by CPUID leaf 0x40000000, "" without one. */
EXPORT void hotloop_hypervisor(char signature[13])
{
    hypervisor_signature(signature);
}

/* Runs one AES round on `state` without asking the CPU first: SIGILL where there is none. Returns 0, or -1 where this
 * architecture's instruction is not known here.
 */
EXPORT int hotloop_try_aes(unsigned char state[16], const unsigned char key[16])
{
    one_round(state, key);
    return CAN_TRY ? 0 : -1;
}
