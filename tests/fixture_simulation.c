/* See fixture_simulation.h. */
#include <math.h>
#include <stdio.h>

#include "eval/random.h"
#include "tests/fixture.h"
#include "tests/fixture_simulation.h"

static uint64_t rng;

void simulation_seed(uint64_t seed)
{
	rng = seed;
}

double uniform(void)
{
	return ((double)(random_next(&rng) >> 11) + 0.5) * 0x1p-53;
}

double gauss(void)
{
	return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform());
}

void check_at_most(const char *what, double rate, double nominal, double n)
{
	double most = nominal + 3 * sqrt(nominal * (1 - nominal) / n);

	fprintf(stderr, "simulated %s: %.4f, at most %.4f (nominal %.4f + 3 standard errors of %.0f)\n", what, rate,
	        most, nominal, n);
	ck_assert_msg(rate <= most, "%s: %.4f, more than %.4f", what, rate, most);
}
