/* Arguments of the drivers: NAME=VALUE, in any order. */
#ifndef TOWERS_TESTS_SUPPORT_ARGUMENTS_H
#define TOWERS_TESTS_SUPPORT_ARGUMENTS_H

const char *argument(int argc, char **argv, const char *name, const char *otherwise); /* borrowed */
double number_argument(int argc, char **argv, const char *name, double otherwise);

#endif
