/* libFuzzer target of networks from ONNX files, with arbitrary bytes: the reader, the nodes and the graph that they make, and the same
 * network with batch norms restored. */

#include "inception/networks/net_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    NetFile *network, *restored;
    int count = 0, elements = 0;
    if (net_file_parse(data, size, "fuzz", &network) != OK) return 0;
    const NetTensor *tensors = net_file_tensors(network, &count);
    for (int i = 0; i < count; i++) elements += tensors[i].rank;
    if (net_file_restore(network, &restored) == OK) net_file_close(restored);
    net_file_close(network);
    return elements > count * NET_FILE_RANK; /* libFuzzer refuses any result but 0 */
}
