/* The kernel chooses: a socket bound to port 0 is given a free one, and is closed again. */
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <unistd.h>

int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}
