/* Runs every suite: tests/test_<name>.c defines `Suite *<name>_suite(void)`, and the Makefile lists them in
 * suites.h. CK_RUN_SUITE picks one by name. */
#include <check.h>
#include <stdlib.h>

#define SUITE(name) Suite *name##_suite(void);
#include "tests/suites.h"
#undef SUITE

int main(void)
{
	SRunner *runner = srunner_create(NULL);
	int ran, failed;

#define SUITE(name) srunner_add_suite(runner, name##_suite());
#include "tests/suites.h"
#undef SUITE
	srunner_run_all(runner, CK_ENV);
	ran = srunner_ntests_run(runner);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed || !ran ? EXIT_FAILURE : EXIT_SUCCESS; /* a suite's name that is misspelt runs nothing */
}
