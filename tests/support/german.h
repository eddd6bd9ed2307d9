/* The German locale, whose numbers have a decimal comma, compiled for the test with localedef (package locales): few
 * machines have one installed. */
#pragma once

#include <stdbool.h>

/* Switches to it; if it cannot be made, changes nothing and returns false: skip the test. */
bool german_begin(void);
void german_end(void); /* back to "C" */
