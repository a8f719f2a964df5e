/* Draws for tests that simulate a statistic, and the check of the rate that they find. */
#ifndef FATHOM_TESTS_FIXTURE_SIMULATION_H
#define FATHOM_TESTS_FIXTURE_SIMULATION_H

#include <stdint.h>

void simulation_seed(uint64_t seed); /* of what follows */

double uniform(void); /* in (0, 1) */
double gauss(void);   /* of mean 0 and sd 1, by Box and Muller: two uniforms */

/* That a rate found in n draws is at most the nominal one and 3 of its standard errors. */
void check_at_most(const char *what, double rate, double nominal, double n);

#endif
