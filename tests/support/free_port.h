/* A port of this machine on which nobody listens at the moment: for servers of tests. Another program may take it in
 * between. */
#ifndef TOWERS_TESTS_SUPPORT_FREE_PORT_H
#define TOWERS_TESTS_SUPPORT_FREE_PORT_H

int free_port(void); /* fails the test if there is none */

#endif
