/* What a program of unit tests begins with: cmocka, behind the headers that it wants before it. */
#pragma once

#include "kernels/status.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A test does not use its state, and a stand-in in a table of functions not every parameter. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
