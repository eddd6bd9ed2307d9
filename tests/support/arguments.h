/* Arguments of the drivers: NAME=VALUE, in any order. */
#pragma once

const char *argument(int argc, char **argv, const char *name, const char *otherwise); /* borrowed */
double number_argument(int argc, char **argv, const char *name, double otherwise);
