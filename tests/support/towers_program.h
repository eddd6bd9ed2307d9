/* The program of the build that a test is of. */
#pragma once

/* The towers in the folder above that of the test's own program. */
const char *towers_program(void);
