/* Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood 2014), which is 64-bit integer
 * arithmetic alone. A seed is the first state. */
#ifndef FATHOM_EVAL_RANDOM_H
#define FATHOM_EVAL_RANDOM_H

#include <stdint.h>

uint64_t random_next(uint64_t *state);

/* One of 0..n-1, each as likely (n >= 1): numbers at or beyond UINT64_MAX - UINT64_MAX % n are drawn again, and the
 * rest is taken modulo n. */
uint64_t random_below(uint64_t *state, uint64_t n);

#endif
