/* libFuzzer target of the control channel's frames and of the variables of launchers: what anybody who reaches the port
 * can send, and what an environment can contain. */
#include <stdlib.h>
#include <string.h>

#include "towers/replica/launch.h"
#include "towers/train/control_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ControlFrame frame;
    for (size_t at = 0; at < size;) {
        int64_t length = control_frame_read(data + at, size - at, &frame);
        if (length <= 0) break;
        if ((size_t)length > size - at || frame.content + frame.bytes != data + at + length) abort();
        at += (size_t)length;
    }
    char *text = malloc(size + 1), *environment[64] = {NULL}, host[32];
    int count = 0;
    Launch launch;
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (launch_first_host(text, host, sizeof host) == OK && (strlen(host) >= sizeof host || !*host)) abort();
    for (char *line = strtok(text, "\n"); line && count < 63; line = strtok(NULL, "\n")) environment[count++] = line;
    if (launch_read(environment, &launch) == OK && (launch.rank < 0 || launch.rank >= launch.ranks)) abort();
    free(text);
    return 0;
}
