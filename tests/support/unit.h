/* What a program of unit tests begins with: cmocka, behind the headers that it wants before it. */
#pragma once

#include "kernels/status.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
