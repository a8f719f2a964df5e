/* Random numbers: see random.h. */
#include "eval/random.h"

uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
	uint64_t x, most = UINT64_MAX - UINT64_MAX % n;

	do {
		x = random_next(state);
	} while (x >= most);
	return x % n;
}
