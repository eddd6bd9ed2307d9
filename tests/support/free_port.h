/* A port of this machine on which nobody listens at the moment: for servers of tests. Another program may take it in
 * between. */
#pragma once

int free_port(void); /* fails the test if there is none */
